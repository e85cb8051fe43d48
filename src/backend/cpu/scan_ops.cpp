#include "backend/cpu/scan_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/gate.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/weights.h"
#include "backend/outside.h"
#include "cpu/convert.h"
#include "cpu/rms_norm.h"
#include "cpu/scan.h"
#include "cpu/swiglu.h"

namespace blend::cpu {
namespace {

// What a head's softplus is multiplied by (RowMixer::decay_is_log).
float rate_of(const RowMixer& m, float decay) { return m.decay_is_log ? -std::exp(decay) : decay; }

using kernels::kScanTile;

// Rows whose q, k and v are at hand at once: those of one key head fit the second-level cache.
constexpr uint32_t kSliceRows = 64;
// Most rows, and elements of states, between two looks at whether the caller has cancelled.
constexpr uint32_t kWatchedRows = 2048;
constexpr uint64_t kWatchedElements = uint64_t{1} << 31;
// A task has at most so many columns of states: with more its slice of rows would not stay in a
// second-level cache.
constexpr size_t kShareColumns = 512;
constexpr float kLengthEps = 1e-6f;

size_t tiles_of(const RowMixer& m) { return (m.v_dim + kScanTile - 1) / kScanTile; }
size_t tile_floats(const RowMixer& m) { return m.k_dim * kScanTile; }
size_t state_bytes(const RowMixer& m) {
  return m.v_heads * tiles_of(m) * tile_floats(m) * sizeof(float);
}

// Tiles of the states of a key head, counted through its value heads: [first, end).
struct TileRange {
  size_t key_head = 0, first = 0, end = 0;
};

// Some value heads of a key head, over rows in slices. Allocates nothing. Used by one task.
class HeadScan {
 public:
  HeadScan(const RowMixer& mixer, const ScanLayer& layer, const CpuKvCache& cache,
           uint32_t cache_layer, const TileRange& tiles, float* scratch)
      : m_(mixer),
        cache_(cache),
        layer_(cache_layer),
        tiles_(tiles),
        first_(tiles.first / tiles_of(mixer)),
        n_((tiles.end + tiles_of(mixer) - 1) / tiles_of(mixer) - first_),
        width_(width(mixer, n_)),
        skip_(elements_of(layer.skip)) {
    taps_ = scratch;
    bias_ = taps_ + m_.taps * width_;
    inputs_ = bias_ + width_;
    mixed_ = inputs_ + (kSliceRows + m_.taps) * width_;
    decays_ = mixed_ + kSliceRows * width_;
    betas_ = decays_ + kSliceRows * n_;
    rates_ = betas_ + kSliceRows * n_;
    gates_ = rates_ + n_;
    const float* const decay = elements_of(layer.decay);
    for (size_t i = 0; i < n_ && !delta(); ++i) {
      rates_[i] = rate_of(m_, decay[value_head(i)]);
    }
    const float *const taps = elements_of(layer.taps), *const bias = elements_of(layer.taps_bias);
    for (size_t p = 0; p < parts(); ++p) {
      for (size_t e = 0; e < dim_of(p); ++e) {
        for (size_t j = 0; j < m_.taps; ++j) {
          taps_[j * width_ + at_of(p) + e] = taps[(column_of(p) + e) * m_.taps + j];
        }
        bias_[at_of(p) + e] = bias == nullptr ? 0.0f : bias[column_of(p) + e];
      }
    }
  }
  // Of its scratch, where a key head's tiles are cut into `shares`.
  static size_t floats(const RowMixer& m, size_t shares) {
    const size_t tiles = tiles_of(m), most = (per_key(m) * tiles + shares - 1) / shares;
    const size_t n = std::min(per_key(m), (most + tiles - 2) / tiles + 1);
    return (2 * (size_t{m.taps} + kSliceRows) + 1) * width(m, n) + (2 * kSliceRows + 1) * n +
           2 * size_t{m.v_heads};
  }

  // What a state begins with; from null: zeros.
  void begin(const float* from, float* state) const {
    for (size_t i = 0; i < n_; ++i) {
      const size_t at = state_at(i, first_tile(i)),
                   n = (end_tile(i) - first_tile(i)) * tile_floats(m_);
      if (from == nullptr) {
        std::fill_n(state + at, n, 0.0f);
      } else {
        std::copy_n(from + at, n, state + at);
      }
    }
  }

  // Rows [first, first + n) of the cache, n <= kSliceRows, into their state and out: [n].
  void run(uint32_t first, uint32_t n, float* const* out, float* state) {
    // Nobody asks for q of most rows of a fuse.
    const bool asked = std::any_of(out, out + n, [](const float* to) { return to != nullptr; });
    read(first, n, asked ? 0 : 1);
    kernels::ScanRows rows;
    rows.corrects = delta();
    rows.n = n;
    rows.k_dim = m_.k_dim;
    rows.q = mixed_;
    rows.k = mixed_ + m_.k_dim;
    rows.qk_stride = rows.v_stride = width_;
    rows.out = out;
    for (size_t i = 0; i < n_; ++i) {
      rows.decay = decays_ + i * kSliceRows;
      rows.beta = betas_ + i * kSliceRows;
      for (size_t tile = first_tile(i); tile < end_tile(i); ++tile) {
        const size_t column = tile * kScanTile;
        rows.columns = std::min<size_t>(kScanTile, m_.v_dim - column);
        rows.v = mixed_ + at_of(2 + i) + column;
        rows.out_at = value_head(i) * m_.v_dim + column;
        kernels::scan_rows(rows, state + state_at(i, tile));
        if (skip_ != nullptr) add_skipped(rows, skip_[value_head(i)]);
      }
    }
  }

 private:
  static size_t per_key(const RowMixer& m) { return m.v_heads / m.k_heads; }
  static size_t width(const RowMixer& m, size_t heads) {
    return 2 * size_t{m.k_dim} + heads * m.v_dim;
  }
  bool delta() const { return m_.kind == RowMixer::Kind::delta; }
  // The i-th value head of the task.
  size_t value_head(size_t i) const {
    const size_t of_key = first_ + i;
    return m_.tiled ? of_key * m_.k_heads + tiles_.key_head
                    : tiles_.key_head * per_key(m_) + of_key;
  }
  // Its tiles.
  size_t first_tile(size_t i) const {
    return std::max(tiles_.first, (first_ + i) * tiles_of(m_)) - (first_ + i) * tiles_of(m_);
  }
  size_t end_tile(size_t i) const {
    return std::min(tiles_.end - (first_ + i) * tiles_of(m_), tiles_of(m_));
  }
  size_t state_at(size_t i, size_t tile) const {
    return (value_head(i) * tiles_of(m_) + tile) * tile_floats(m_);
  }
  // q, k, and v of each value head, which are a Mamba-2's C, B and x: elements, where they are in
  // mixed_, and in the cache's rows.
  size_t parts() const { return 2 + n_; }
  size_t dim_of(size_t p) const { return p < 2 ? m_.k_dim : m_.v_dim; }
  size_t at_of(size_t p) const { return p < 2 ? p * m_.k_dim : 2 * m_.k_dim + (p - 2) * m_.v_dim; }
  size_t column_of(size_t p) const {
    const size_t keys = size_t{m_.k_heads} * m_.k_dim;
    if (p >= 2) return (delta() ? 2 * keys : 0) + value_head(p - 2) * m_.v_dim;
    const size_t own = tiles_.key_head * m_.k_dim;
    return delta() ? p * keys + own : m_.value_dim() + (1 - p) * keys + own;
  }
  void decode(uint32_t slot, size_t column, size_t n, float* to) const {
    const auto size = static_cast<size_t>(dtype_size(cache_.dtype()));
    kernels::decode(cache_.row(layer_, slot) + column * size, cache_.dtype(), n, to);
  }

  // The rows' parts from `first_part` on, convolved, in mixed_; their decays and betas.
  void read(uint32_t first, uint32_t n, size_t first_part) {
    const uint32_t before = m_.taps - 1;
    for (uint32_t i = 0; i < n + before; ++i) {
      float* const row = inputs_ + i * width_;
      if (first + i < before) {
        std::fill_n(row, width_, 0.0f);
        continue;
      }
      for (size_t p = first_part; p < parts(); ++p) {
        decode(first + i - before, column_of(p), dim_of(p), row + at_of(p));
      }
    }
    const size_t skipped = at_of(first_part);
    for (uint32_t t = 0; t < n; ++t) {
      float* const row = mixed_ + t * width_;
      kernels::conv_silu(inputs_ + t * width_ + skipped, taps_ + skipped, bias_ + skipped, width_,
                         m_.taps, width_ - skipped, row + skipped);
      if (delta()) {
        read_delta(first + t, t, row, first_part == 0);
      } else {
        read_ssm(first + t, t);
      }
    }
  }
  void read_delta(uint32_t slot, uint32_t t, float* row, bool asked) {
    const float length = 1.0f / std::sqrt(static_cast<float>(m_.k_dim));
    if (asked) kernels::to_length(row, m_.k_dim, kLengthEps, length);
    kernels::to_length(row + m_.k_dim, m_.k_dim, kLengthEps, 1);
    decode(slot, m_.qkv_dim(), 2 * size_t{m_.v_heads}, gates_);
    for (size_t i = 0; i < n_; ++i) {
      betas_[i * kSliceRows + t] = gates_[value_head(i)];
      decays_[i * kSliceRows + t] = std::exp(gates_[m_.v_heads + value_head(i)]);
    }
  }
  void read_ssm(uint32_t slot, uint32_t t) {
    decode(slot, m_.qkv_dim(), m_.v_heads, gates_);
    for (size_t i = 0; i < n_; ++i) {
      const float dt = gates_[value_head(i)];
      betas_[i * kSliceRows + t] = dt;
      decays_[i * kSliceRows + t] = std::exp(rates_[i] * dt);
    }
  }
  static void add_skipped(const kernels::ScanRows& rows, float skip) {
    for (size_t t = 0; t < rows.n; ++t) {
      if (rows.out[t] == nullptr) continue;
      const float* const v = rows.v + t * rows.v_stride;
      for (size_t c = 0; c < rows.columns; ++c) rows.out[t][rows.out_at + c] += skip * v[c];
    }
  }

  const RowMixer& m_;
  const CpuKvCache& cache_;
  const uint32_t layer_;
  const TileRange tiles_;
  const size_t first_, n_;  // value heads of the key head
  const size_t width_;
  const float* skip_;
  float *taps_, *bias_, *inputs_, *mixed_, *decays_, *betas_, *gates_;
  float* rates_;  // a Mamba-2's -A of each value head
};

Status check_layer(const RowMixer& m, const ScanLayer& layer, Tensor z) {
  const auto size = [](const Weight* w) { return static_cast<const CpuVector*>(w)->size(); };
  const bool ssm = m.kind == RowMixer::Kind::ssm;
  const bool own = !ssm || (layer.skip != nullptr && size(layer.skip) == m.v_heads);
  const bool normed = !ssm || m.norm != RowMixer::Norm::none;
  const bool fits = layer.norm != nullptr && size(layer.norm) == (ssm ? m.value_dim() : m.v_dim);
  if (own && fits == normed && z.cols == m.value_dim() &&
      size(layer.taps) == int64_t{m.qkv_dim()} * m.taps &&
      (layer.taps_bias == nullptr || size(layer.taps_bias) == m.qkv_dim())) {
    return Status::ok();
  }
  return make_error(BLEND_E_INTERNAL, "mix: weights of another layer, or rows of %lld elements",
                    static_cast<long long>(z.cols));
}

}  // namespace

Status CpuScanOps::prepare(const RowMixer& mixer, const ScanLayer& layer, Tensor rows) {
  const auto cols = static_cast<size_t>(rows.cols);
  const size_t heads = mixer.v_heads;
  const float *const decay = elements_of(layer.decay), *const bias = elements_of(layer.bias);
  auto* const data = static_cast<float*>(rows.data);
  const auto softplus = [](float y) {
    return std::max(y, 0.0f) + std::log1p(std::exp(-std::abs(y)));
  };
  const auto of_delta = [&](float* b) {
    float* const a = b + heads;
    for (size_t h = 0; h < heads; ++h) {
      b[h] = 1.0f / (1.0f + std::exp(-b[h]));
      a[h] = rate_of(mixer, decay[h]) * softplus(a[h] + bias[h]);
    }
  };
  const auto of_ssm = [&](float* dt) {
    for (size_t h = 0; h < heads; ++h) dt[h] = softplus(dt[h] + bias[h]);
  };
  const bool delta = mixer.kind == RowMixer::Kind::delta;
  pool_.parallel_for(static_cast<size_t>(rows.rows), row_grain(64 * heads),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         float* const gates = data + i * cols + mixer.qkv_dim();
                         delta ? of_delta(gates) : of_ssm(gates);
                       }
                     });
  return Status::ok();
}

Status CpuScanOps::scan(const RowMixer& mixer, const ScanLayer& layer, const CpuKvCache& cache,
                        uint32_t cache_layer, std::span<const uint32_t> pos,
                        std::span<float* const> out, const Watch& watch) {
  ScanStates& states = cache.states(cache_layer);
  const uint32_t end = pos.back() + 1;
  ScanState start = states.before(pos.front()), last;
  const float* from = start.buffer == nullptr ? nullptr : start.buffer->as<float>();
  const bool in_place = from != nullptr && !start.shared && start.n_rows + 1 == end;
  if (in_place) {
    last = states.take(pos.front());
  } else {
    BLEND_ASSIGN(AlignedBuffer fresh, AlignedBuffer::allocate(state_bytes(mixer)));
    last.buffer = std::make_shared<AlignedBuffer>(std::move(fresh));
  }
  float* const state = last.buffer->as<float>();

  // A key head is cut where threads are more than key heads, and where its value heads are too many
  // for a cache. Each task convolves its q and k.
  const size_t keys = mixer.k_heads, units = mixer.v_heads / keys * tiles_of(mixer);
  const size_t by_threads = (pool_.n_threads() + keys - 1) / keys;
  constexpr size_t kShareTiles = kShareColumns / kScanTile;
  const size_t by_size = (units + kShareTiles - 1) / kShareTiles;
  const size_t shares = std::min(units, std::max(by_threads, by_size));
  const uint64_t of_row = uint64_t{keys} * units * tile_floats(mixer);
  const auto watched = static_cast<uint32_t>(
      std::clamp<uint64_t>(kWatchedElements / of_row, kSliceRows, kWatchedRows));
  const size_t per_thread = (HeadScan::floats(mixer, shares) + 15) / 16 * 16;
  const size_t of_heads = per_thread * pool_.n_threads() * sizeof(float);
  BLEND_ASSIGN(auto scratch, scratch_.take(of_heads + kWatchedRows * sizeof(float*)));
  auto** const to = reinterpret_cast<float**>(scratch.data() + of_heads);
  size_t next = 0;  // of pos
  for (uint32_t first = start.n_rows; first < end; first += watched) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const uint32_t n = std::min(watched, end - first);
    std::fill_n(to, n, nullptr);
    for (; next < pos.size() && pos[next] < first + n; ++next) to[pos[next] - first] = out[next];
    const size_t work = n * tile_floats(mixer) * units / shares;
    pool_.parallel_for(
        keys * shares, row_grain(work), [&](size_t begin, size_t stop, uint32_t thread) {
          for (size_t task = begin; task < stop; ++task) {
            const size_t share = task % shares;
            const TileRange own{task / shares, share * units / shares,
                                (share + 1) * units / shares};
            HeadScan head(mixer, layer, cache, cache_layer, own,
                          reinterpret_cast<float*>(scratch.data()) + per_thread * thread);
            if (first == start.n_rows && !in_place) head.begin(from, state);
            for (uint32_t at = 0; at < n; at += kSliceRows) {
              head.run(first + at, std::min(kSliceRows, n - at), to + at, state);
            }
          }
        });
  }
  last.n_rows = end;
  if (in_place) start = states.before(pos.front());
  states.keep(std::move(start), std::move(last));
  return Status::ok();
}

void CpuScanOps::finish(const RowMixer& mixer, const ScanLayer& layer, float* y, float* z,
                        size_t rows) {
  using Norm = RowMixer::Norm;
  const bool ssm = mixer.kind == RowMixer::Kind::ssm;
  const Norm how = ssm ? mixer.norm : Norm::before_gate;
  const size_t value_dim = mixer.value_dim();
  const size_t dim = ssm ? value_dim / mixer.k_heads : mixer.v_dim;
  const float* const norm = elements_of(layer.norm);
  const auto norm_parts = [&](float* row) {
    for (size_t at = 0; at < value_dim; at += dim) {
      kernels::rms_norm(row + at, ssm ? norm + at : norm, layer.eps, dim, row + at);
    }
  };
  pool_.parallel_for(rows, row_grain(2 * value_dim), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      float *const row = y + i * value_dim, *const gate = z + i * value_dim;
      if (how == Norm::before_gate) norm_parts(row);
      kernels::swiglu(gate, row, value_dim, gate);
      if (how == Norm::after_gate) norm_parts(gate);
    }
  });
}

Status CpuScanOps::mix(const RowMixer& mixer, const ScanLayer& layer, const KvCache& cache,
                       uint32_t cache_layer, Tensor z, const uint32_t* pos, const Watch& watch) {
  const auto& from = static_cast<const CpuKvCache&>(cache);
  const auto rows = static_cast<size_t>(z.rows), dim = static_cast<size_t>(mixer.value_dim());
  BLEND_RETURN_IF_ERROR(check_layer(mixer, layer, z));
  if (rows == 0) return Status::ok();
  if (pos[rows - 1] >= from.capacity()) return outside("mix", pos[rows - 1], from.capacity());
  const size_t out_bytes = rows * sizeof(float*);
  BLEND_ASSIGN(auto scratch, scratch_.take(out_bytes + rows * dim * sizeof(float)));
  auto** const out = reinterpret_cast<float**>(scratch.data());
  auto* const y = reinterpret_cast<float*>(scratch.data() + out_bytes);
  for (size_t i = 0; i < rows; ++i) out[i] = y + i * dim;
  BLEND_RETURN_IF_ERROR(scan(mixer, layer, from, cache_layer, {pos, rows}, {out, rows}, watch));
  finish(mixer, layer, y, static_cast<float*>(z.data), rows);
  return Status::ok();
}

Status CpuScanOps::mix_each(const RowMixer& mixer, const ScanLayer& layer, uint32_t cache_layer,
                            Tensor z, std::span<const RowOver> rows) {
  const auto n = static_cast<size_t>(z.rows), dim = static_cast<size_t>(mixer.value_dim());
  BLEND_RETURN_IF_ERROR(check_layer(mixer, layer, z));
  const size_t out_bytes = n * sizeof(float*), pos_bytes = n * sizeof(uint32_t);
  BLEND_ASSIGN(auto scratch, scratch_.take(out_bytes + pos_bytes + n * dim * sizeof(float)));
  auto** const out = reinterpret_cast<float**>(scratch.data());
  auto* const pos = reinterpret_cast<uint32_t*>(scratch.data() + out_bytes);
  auto* const y = reinterpret_cast<float*>(scratch.data() + out_bytes + pos_bytes);
  std::fill_n(y, n * dim, 0.0f);  // rows that have failed are not scanned
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    const auto& cache = static_cast<const CpuKvCache&>(*rows[first].cache);
    for (; end < rows.size() && rows[end].cache == rows[first].cache; ++end) {
      if (rows[end].pos >= cache.capacity()) {
        return outside("mix_each", rows[end].pos, cache.capacity());
      }
      out[end - first] = y + rows[end].row * dim;
      pos[end - first] = rows[end].pos;
    }
    BLEND_RETURN_IF_ERROR(
        scan(mixer, layer, cache, cache_layer, {pos, end - first}, {out, end - first}, {}));
  }
  finish(mixer, layer, y, static_cast<float*>(z.data), n);
  return Status::ok();
}

Status CpuScanOps::gate(Tensor gate, Tensor x) {
  const auto n = static_cast<size_t>(x.cols);
  const auto* const from = static_cast<const float*>(gate.data);
  auto* const to = static_cast<float*>(x.data);
  gate_rows(pool_, static_cast<size_t>(x.rows), n, kernels::sigmoid_gate, from, to, n, to);
  return Status::ok();
}

}  // namespace blend::cpu
