// FusionOps: what a fuse needs besides a Transformer's operations: stored rows into and out of a
// KV cache, deviation and the choice of rows, drift correction, the shift of chunks, attention
// mass, tempered attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/attention.h"
#include "backend/chunk_shift.h"
#include "backend/deviation.h"
#include "backend/drift.h"
#include "backend/kv_cache.h"
#include "backend/stored_run.h"
#include "backend/tensor.h"
#include "base/status.h"
#include "formats/half.h"

namespace blend {

// Part of a backend (backend.h): its rules of order, visibility and threads hold here as well.
class FusionOps {
 public:
  virtual ~FusionOps() = default;
  // ---- Stored rows
  // Decodes stored rows, adds `correction` (may be null) to them, rotates K to its slot,
  // scatters both. Rows with skip[slot] != 0 are left alone; skip: host [capacity] or null.
  virtual Status scatter(KvCache& cache, uint32_t layer, const RopeTable& rope,
                         std::span<const StoredRun> runs, const uint8_t* skip,
                         const Correction* correction) = 0;
  // The inverse of Backend::write_kv(): kv: [rows, 2 * kv_dim] = K before RoPE | V; slots: host
  // [kv.rows], ascending. K is exact but for rounding in f32.
  virtual Status read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope,
                         const uint32_t* slots, Tensor kv) = 0;
  // Splits and rounds fresh K | V to storage: k, v: host [rows, kv_dim] of dtype. NUMERIC when a
  // value is not finite in dtype.
  virtual Status encode_kv(Tensor kv, DType dtype, std::byte* k, std::byte* v) = 0;

  // ---- Selection (CacheBlend 4.2: deviation of row i = sum over kv_dim of (fresh - stored)^2)
  // out: host [kv.rows]; only the rows of runs are written. kv: [rows, 2 * kv_dim], K before RoPE.
  virtual Status deviation(Tensor kv, std::span<const StoredRun> runs, const DeviationRule& rule,
                           float* out) = 0;
  // Indices of the k largest scores, ascending; ties go to the lower index. NaN counts as largest.
  virtual Status top_k(std::span<const float> scores, size_t k, uint32_t* out) = 0;

  // ---- Drift correction
  // The drift maps' inputs of the rows of deviation(): out: [kv.rows, inputs.size(kv_dim)]; only
  // the rows of runs are written.
  virtual Status drift_inputs(Tensor kv, std::span<const StoredRun> runs, DriftInputs inputs,
                              Tensor out) = 0;
  // The inputs of rows of which nothing is computed: out: [rows, DriftInputs::of_stored().size()];
  // features: host [out.rows]; only the rows of runs are written.
  virtual Status stored_inputs(std::span<const StoredRun> runs, const StoredFeatures* features,
                               Tensor out) = 0;
  // How well the drift maps did on rows whose drift is known: the least-squares factors that bring
  // their predictions nearest to it, for K and for V, each within 0 and 1; 0 where nothing was
  // predicted. predicted, drift: [rows, 2 * kv_dim] = K | V. Same to the last bit on any number
  // of threads.
  virtual Status drift_share(Tensor predicted, Tensor drift, DriftShare* share) = 0;
  // K of every row times share.k, V times share.v; kv: [rows, 2 * kv_dim].
  virtual Status scale_kv(Tensor kv, DriftShare share) = 0;

  // ---- The shift of chunks (chunk_shift.h)
  // Adds to every row of the chunks that is not one of moves.slots, in place, what ShiftRule makes
  // of its chunk's moves; K is rotated to its slot. In layers that attend over K and V of heads.
  // NUMERIC: a sum is not finite in the cache's type.
  virtual Status shift_rows(KvCache& cache, uint32_t layer, const RopeTable& rope,
                            const Moves& moves, std::span<const ShiftedChunk> chunks) = 0;

  // ---- Attention
  // mass[j] += the probability that Backend::attention() would put on slot j, summed over rows and
  // heads. q: [rows, n_heads * head_dim], rotated; pos: host, ascending; mass: host
  // [pos[rows - 1] + 1]. The same to the last bit on any number of threads.
  virtual Status attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                                Tensor q, const uint32_t* pos, float* mass) = 0;
  // Backend::attention() where the keys of some slots are tempered, per row and head:
  //   Z_t = sum over tempered slots of exp(s_j / T), Z_o = sum over the others of exp(s_j)
  //   out = (Z_t^S * weighted mean of their V + Z_o * that of the others') / (Z_t^S + Z_o)
  // A sink is one of the others, with 0 for its V.
  // mass (may be null): host [rows], the probability that a row put on tempered slots, mean over
  // heads. For few rows: it is slower than attention(), which it equals at T = S = 1.
  virtual Status attention_tempered(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                                    Tensor q, const uint32_t* pos, const Tempering& tempering,
                                    Tensor out, float* mass) = 0;
};

}  // namespace blend
