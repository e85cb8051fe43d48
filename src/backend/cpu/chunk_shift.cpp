// The shift of chunks in a KV cache.
#include <algorithm>
#include <atomic>

#include "backend/cpu/fusion_ops.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/key_block_writer.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/rope_table.h"
#include "backend/outside.h"
#include "cpu/convert.h"
#include "cpu/drift.h"
#include "cpu/rope.h"
#include "cpu/scatter_k.h"

namespace blend::cpu {
namespace {

using kernels::kKeyBlock;

// Rows of one chunk in one key block at most.
struct Piece {
  const ShiftedChunk* chunk;
  uint32_t first, last;  // slots [first, last)
};

std::vector<Piece> pieces_of(std::span<const ShiftedChunk> chunks) {
  std::vector<Piece> pieces;
  for (const ShiftedChunk& chunk : chunks) {
    const uint32_t end = chunk.first + chunk.n_rows;
    for (uint32_t at = chunk.first; at < end && chunk.n_moved > 0;) {
      const uint32_t last = std::min<uint32_t>(end, (at / kKeyBlock + 1) * kKeyBlock);
      pieces.push_back({&chunk, at, last});
      at = last;
    }
  }
  return pieces;
}

// Shifts the rows of pieces, one after another. Used by one thread.
class Shifter {
 public:
  static size_t scratch_floats(const CpuKvCache& cache, uint32_t layer) {
    return 2 * cache.kv_dim(layer) + kKeyBlock * stride(cache, layer);
  }
  Shifter(const CpuKvCache& cache, uint32_t layer, const CpuRopeTable& rope, const ShiftRule& rule,
          const Moves& moves, float* scratch)
      : cache_(cache),
        layer_(layer),
        rope_(rope),
        rule_(rule),
        moves_(moves),
        n_(2 * cache.kv_dim(layer)),
        sum_(scratch),
        rows_(scratch + n_) {}

  // False: a row is not finite in the cache's type.
  bool shift(const Piece& piece) {
    if (piece.chunk != chunk_) add_up(*piece.chunk);
    const kernels::KvLayout& layout = cache_.layout(layer_);
    uint32_t slots[kKeyBlock];
    size_t n_rows = 0;
    bool finite = true;
    for (uint32_t slot = piece.first; slot < piece.last; ++slot) {
      float* const row = rows_ + n_rows * stride(cache_, layer_);
      if (!shift_of(slot, row)) continue;
      kernels::rope(rope_.row(slot, layout.n_kv_heads, layout.head_dim), row);
      finite &= add_to_value(slot, row + n_ / 2);
      add_key(slot, row);
      slots[n_rows++] = slot;
    }
    return kernels::scatter_k(rows_, stride(cache_, layer_), slots, n_rows, layout, cache_.dtype(),
                              cache_.k(layer_)) &&
           finite;
  }

 private:
  // Not a power of two, so that sixteen rows do not map to the same cache set.
  static size_t stride(const CpuKvCache& cache, uint32_t layer) {
    return 2 * cache.kv_dim(layer) + 16;
  }
  const float* moved(uint32_t i) const {
    return static_cast<const float*>(moves_.kv.data) + i * n_;
  }

  void add_up(const ShiftedChunk& chunk) {
    chunk_ = &chunk;
    std::fill_n(sum_, n_, 0.0f);
    for (uint32_t i = 0; i < chunk.n_moved; ++i) {
      kernels::add_scaled(moved(chunk.begin + i), 1.0f, n_, sum_);
    }
  }
  // out: [2 * kv_dim]. False: the row is one of those that moved.
  bool shift_of(uint32_t slot, float* out) const {
    const uint32_t* const begin = moves_.slots + chunk_->begin;
    const uint32_t* const end = begin + chunk_->n_moved;
    const uint32_t low = slot - std::min(slot, ShiftRule::kNear);
    const uint32_t* const near = std::lower_bound(begin, end, low);
    float weights = static_cast<float>(chunk_->n_moved) + ShiftRule::kPrior;
    const uint32_t* at = near;
    for (; at != end && *at <= slot + ShiftRule::kNear; ++at) {
      if (*at == slot) return false;
      weights += rule_.near(*at < slot ? slot - *at : *at - slot);
    }
    std::fill_n(out, n_, 0.0f);
    kernels::add_scaled(sum_, 1.0f / weights, n_, out);
    for (const uint32_t* i = near; i != at; ++i) {
      const float weight = rule_.near(*i < slot ? slot - *i : *i - slot);
      kernels::add_scaled(moved(static_cast<uint32_t>(i - moves_.slots)), weight / weights, n_,
                          out);
    }
    return true;
  }
  bool add_to_value(uint32_t slot, float* shift) const {
    const kernels::KvLayout& layout = cache_.layout(layer_);
    bool finite = true;
    for (size_t h = 0; h < layout.n_kv_heads; ++h) {
      float* const head = shift + h * layout.head_dim;
      std::byte* const value = cache_.value(layer_, h, slot);
      kernels::decode_add(value, cache_.dtype(), layout.head_dim, head, head);
      finite &= kernels::encode(head, layout.head_dim, cache_.dtype(), value);
    }
    return finite;
  }
  void add_key(uint32_t slot, float* shift) const {
    const kernels::KvLayout& layout = cache_.layout(layer_);
    for (size_t h = 0; h < layout.n_kv_heads; ++h) {
      const std::byte* const key = cache_.key(layer_, h, slot);
      for (size_t e = 0; e < layout.head_dim; ++e) {
        *shift++ += kernels::cached_value(key, cache_.dtype(), e * kKeyBlock);
      }
    }
  }

  const CpuKvCache& cache_;
  const uint32_t layer_;
  const CpuRopeTable& rope_;
  const ShiftRule& rule_;
  const Moves& moves_;
  const size_t n_;                       // 2 * kv_dim
  float* const sum_;                     // [n_], of the chunk's moves
  float* const rows_;                    // [kKeyBlock, stride()]
  const ShiftedChunk* chunk_ = nullptr;  // whose sum it is
};

}  // namespace

Status CpuFusionOps::shift_rows(KvCache& cache, uint32_t layer, const RopeTable& rope,
                                const Moves& moves, std::span<const ShiftedChunk> chunks) {
  auto& c = static_cast<CpuKvCache&>(cache);
  const auto& table = static_cast<const CpuRopeTable&>(rope);
  const uint32_t limit = std::min(c.capacity(), table.n_positions());
  for (const ShiftedChunk& chunk : chunks) {
    if (chunk.first > limit || chunk.n_rows > limit - chunk.first) {
      return outside("shift_rows", uint64_t{chunk.first} + chunk.n_rows, limit);
    }
    c.wrote(layer, chunk.first);
  }
  const ShiftRule rule;
  const std::vector<Piece> pieces = pieces_of(chunks);
  const size_t per_thread = Shifter::scratch_floats(c, layer);
  BLEND_ASSIGN(auto scratch, scratch_.take(per_thread * pool_.n_threads() * sizeof(float)));
  std::atomic<bool> finite{true};
  pool_.parallel_for(pieces.size(), 4, [&](size_t begin, size_t end, uint32_t thread) {
    Shifter shifter(c, layer, table, rule, moves,
                    reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
    for (; begin < end; ++begin) {
      if (!shifter.shift(pieces[begin])) finite.store(false, std::memory_order_relaxed);
    }
  });
  return finite ? Status::ok() : cache_not_finite(c, layer);
}

}  // namespace blend::cpu
