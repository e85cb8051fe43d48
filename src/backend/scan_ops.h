// ScanOps: layers whose rows pass through states, Gated DeltaNets and Mamba-2s (RowMixer in
// model/config.h); and the gate that the attending layers of the first have.
#pragma once

#include <cstdint>
#include <span>

#include "backend/attention.h"
#include "backend/kv_cache.h"
#include "backend/tensor.h"
#include "backend/weight.h"
#include "base/status.h"
#include "base/threads/cancel.h"
#include "model/config.h"

namespace blend {

// Vectors of such a layer: load_vector().
struct ScanLayer {
  const Weight* taps = nullptr;       // [qkv_dim, taps]
  const Weight* decay = nullptr;      // [v_heads]
  const Weight* bias = nullptr;       // [v_heads]
  const Weight* norm = nullptr;       // [v_dim]; of a Mamba-2 [value_dim], or null
  float eps = 0;                      // of the norm
  const Weight* taps_bias = nullptr;  // [qkv_dim], or null
  const Weight* skip = nullptr;       // [v_heads]: D of a Mamba-2
};

// Part of a backend (backend.h): its rules of order and threads hold here as well. Where a backend
// has it, its caches keep a row of RowMixer::row_dim() a slot in such layers, and what works on a
// cache's rows K | V works on these, as in ConvOps.
//
// A cache also keeps states of the rows so far, which follow from the rows: at most two a layer,
// after the last row that was mixed and before the last call of several rows. Writing a row drops
// the states that it is part of. So a token does not read the rows before it again, and
// drafts that are rejected cost as many rows as there were drafts. Calls that mix rows of one cache
// and layer are not concurrent.
class ScanOps {
 public:
  virtual ~ScanOps() = default;
  // Makes rows out of their projections, in place. rows: [rows, mixer_row_dim()]. Of q | k | v | b
  // | a, b becomes its sigmoid and a the log of its decay, -x softplus(a + bias) with the x of
  // RowMixer::decay_is_log; of x | B | C | dt, dt becomes softplus(dt + bias).
  virtual Status prepare(const RowMixer& mixer, const ScanLayer& layer, Tensor rows) = 0;
  // The results y of the rows at pos (host, ascending), of all the rows in the cache up to each:
  // z = norm(y) * silu(z), each value head normed by itself, in place of z, [rows, value_dim()]; of
  // a Mamba-2 z = norm(y * silu(z)), or as RowMixer::norm says, the value heads of a key head
  // normed together. CANCELLED within some thousand rows.
  virtual Status mix(const RowMixer& mixer, const ScanLayer& layer, const KvCache& cache,
                     uint32_t cache_layer, Tensor z, const uint32_t* pos, const Watch& watch) = 0;
  // mix() of rows that each see a cache of their own, or follow one another in one; bit for bit its
  // result for each by itself.
  virtual Status mix_each(const RowMixer& mixer, const ScanLayer& layer, uint32_t cache_layer,
                          Tensor z, std::span<const RowOver> rows) = 0;
  // x *= sigmoid(gate), of one shape.
  virtual Status gate(Tensor gate, Tensor x) = 0;
};

}  // namespace blend
