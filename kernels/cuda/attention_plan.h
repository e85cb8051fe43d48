// How the work of one attention call is cut into blocks: host code, the same for every device.
//
// The query heads that share a KV head (GQA) are packed: "m-row" m stands for query row m / group
// and head m % group of the KV head. A block takes a tile of 16 m-rows a warp over one KV head and
// walks the keys in tiles, up to the last position of its own rows. Where that gives too few blocks
// to fill the device (decode; few rows after a long prompt), the keys are split among several
// blocks, whose parts a second kernel combines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace blend::kernels::cuda {

inline constexpr uint32_t kMostHeadDim = 256;

struct AttentionPlan {
  uint32_t padded = 0;  // head_dim rounded up to a size that there is a kernel for
  uint32_t warps = 0;   // of a block
  uint32_t keys = 0;    // of a tile
  uint32_t m_rows = 0;  // query rows times group
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t m_tiles = 0;
  uint32_t splits = 1;
  uint32_t most_splits = 1;  // whatever the number of keys

  uint32_t tile_rows() const { return 16 * warps; }
  // Q, and two stages of K and V.
  size_t shared_bytes() const { return size_t{2} * padded * (tile_rows() + size_t{4} * keys); }
  // For every part its largest score and weight, and its sums where there are any.
  size_t part_floats(bool with_sums = true) const {
    return size_t{splits} * n_kv_heads * m_rows * ((with_sums ? head_dim : 0) + size_t{2});
  }
  // Unless the keys are split: nothing.
  size_t scratch_floats() const { return splits == 1 ? 0 : part_floats(); }
};

// 0: head_dim is too large for the kernels.
constexpr uint32_t padded_head_dim(uint32_t head_dim) {
  for (const uint32_t padded : {32u, 64u, 96u, 128u, 256u}) {
    if (head_dim <= padded) return padded;
  }
  return 0;
}
// As many as leave room for two stages in the 99 KiB of shared memory that sm_86 has.
constexpr uint32_t keys_of_tile(uint32_t padded) { return padded <= 128 ? 64 : 32; }

// The first key that a row at position `pos` sees.
#if defined(__CUDACC__)
__host__ __device__
#endif
    constexpr uint32_t
    first_key(uint32_t pos, uint32_t window) {
  return window == 0 || pos < window ? 0 : pos - window + 1;
}

// Tiles of keys [begin, end) that part `split` of `splits` walks, of those that hold the keys
// [first, n_keys).
struct KeyTiles {
  uint32_t begin = 0;
  uint32_t end = 0;
};
#if defined(__CUDACC__)
__host__ __device__
#endif
    constexpr KeyTiles
    key_tiles(uint32_t first, uint32_t n_keys, uint32_t keys, uint32_t split, uint32_t splits) {
  const uint32_t from = first / keys, n = (n_keys + keys - 1) / keys;
  const uint32_t each = (n - from + splits - 1) / splits;
  const uint32_t begin = from + split * each < n ? from + split * each : n;
  return {begin, begin + each < n ? begin + each : n};
}

inline constexpr uint32_t kLeastTilesOfASplit = 4;

// n_rows > 0; last_pos: the largest position, or the window's last key where that is fewer. n_sms:
// multiprocessors of the device.
inline AttentionPlan plan_attention(uint32_t n_rows, uint32_t group, uint32_t n_kv_heads,
                                    uint32_t head_dim, uint32_t last_pos, uint32_t n_sms) {
  constexpr uint32_t kMostSplits = 64;
  AttentionPlan p;
  p.padded = padded_head_dim(head_dim);
  p.keys = keys_of_tile(p.padded);
  p.m_rows = n_rows * group;
  p.n_kv_heads = n_kv_heads;
  p.head_dim = head_dim;
  p.warps = p.m_rows <= 16 ? 1 : 4;
  p.m_tiles = (p.m_rows + p.tile_rows() - 1) / p.tile_rows();
  const uint32_t blocks = p.m_tiles * n_kv_heads, n_tiles = last_pos / p.keys + 1;
  if (blocks < n_sms) {
    // As many as run at once, two on a multiprocessor: one more would be a wave of its own.
    p.most_splits = std::min(2 * n_sms / blocks, kMostSplits);
    p.splits = std::max(1u, std::min(p.most_splits, n_tiles / kLeastTilesOfASplit));
  }
  return p;
}

// The last position whose plan is this one, which was made for some position before it.
inline uint32_t plan_lasts(const AttentionPlan& p, uint32_t window) {
  if (p.splits == p.most_splits) return UINT32_MAX;
  const uint32_t until = ((p.splits + 1) * kLeastTilesOfASplit - 1) * p.keys - 1;
  return window != 0 && until >= window - 1 ? UINT32_MAX : until;  // no row sees more keys
}

}  // namespace blend::kernels::cuda
