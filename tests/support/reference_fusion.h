// The fusion rule of the paper (sections 4.2 and 4.3) as a float64 reference: what blend_fuse must
// compute, row by row.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "blend/experimental.h"
#include "support/reference.h"

namespace blend::test {

struct ReferenceSegment {
  uint32_t kind = BLEND_SEGMENT_TEXT;
  std::vector<int32_t> tokens;
  bool computed = false;  // a PREFIX or CHUNK that is missing and computed inline (MISS_COMPUTE)
};

// Score of a row for BLEND_POLICY_CALLBACK.
using ReferenceScore = std::function<double(uint32_t row, double deviation)>;

// The drift correction: rows that are not computed after `check_layer`, the first check, take
// K | V + A x there, x = [fresh - stored | fresh | 1] of K | V at the check layer (K before RoPE).
struct ReferenceDrift {
  uint32_t check_layer = 1;
  bool fresh = false;
  bool constant = false;
  std::vector<std::vector<double>> maps;  // of layers check_layer + 1 ..: A, [2 kv_dim, n_in]
  // K and V that are added are scaled by clip(<drift, A x> / <A x, A x>, 0, 1) over the computed
  // rows.
  bool guarded = true;
};

struct ReferenceFuseOptions {
  uint32_t policy = BLEND_POLICY_HKVD;
  uint32_t metric = BLEND_METRIC_V;
  uint32_t norm = BLEND_NORM_L2;
  bool relative = false;
  uint32_t check_layer = 1;
  double ratio = 0.15;
  std::vector<blend_check_layer> check_layers;  // empty: check_layer and ratio
  std::vector<blend_policy_term> terms;
  uint64_t seed = 0;
  ReferenceScore score;
  DType kv_dtype = DType::f32;
  std::vector<int32_t> chunk_prefix;
  std::optional<ReferenceDrift> drift;
  double ape_temperature = 0.9, ape_scale = 0.9;
  bool shift = true;  // of chunks, where the question chooses in the middle layers
  // Recompute these rows instead of the ones that the last check layer chooses: for comparing the
  // rest of the computation where two deviations are too close for f32 to order.
  std::optional<std::vector<uint32_t>> forced_selection;
};

struct ReferenceFusion {
  std::vector<double> logits;     // [n_vocab], of the last row
  std::vector<double> deviation;  // [n_rows], at the first check; 0 where it was not measured
  std::vector<double> score;      // [n_rows], at the last check, of its candidates
  std::vector<blend_check_layer> checks;  // the schedule in force
  std::vector<size_t> n_after;            // rows of candidates left behind each check
  std::vector<uint32_t> selected;         // ascending
  std::vector<uint8_t> exact;             // [n_segments]
  size_t n_rows = 0, n_exact = 0, n_reused = 0, n_always = 0;
  size_t n_candidates = 0;
  size_t n_corrected = 0;
  size_t n_shifted = 0;
  std::vector<std::array<double, 2>>
      drift_share;    // [n_layers] of K and V; 0 where nothing is corrected
  size_t budget = 0;  // of the last check
  ReferenceKv kv;     // the fused cache: K before RoPE
  // APE: the layer from which each row is tempered, UINT32_MAX for those that never are; [n_rows]
  // where anything is.
  std::vector<uint32_t> tempered_from;
  double ape_temperature = 1, ape_scale = 1;
  size_t n_tempered = 0;
};

// Whether a policy looks at deviations: then it chooses at layer 1 or later.
bool reference_measures(const ReferenceFuseOptions& options);

ReferenceFusion reference_fuse(const ReferenceModel& model,
                               const std::vector<ReferenceSegment>& segments,
                               const ReferenceFuseOptions& options);

// Appends tokens to the fused cache; `fusion.logits` become those of the last one.
void reference_decode(const ReferenceModel& model, ReferenceFusion& fusion,
                      const std::vector<int32_t>& tokens);

// Rows [first, first + n_old) of the cache and of its tokens `all` taken out, `tokens` put there.
// The new rows are computed on what precedes them; later ones keep their V and their K before
// RoPE, but the last row is decoded again; `fusion.logits` become its.
void reference_replace(const ReferenceModel& model, ReferenceFusion& fusion,
                       std::vector<int32_t>& all, size_t first, size_t n_old,
                       const std::vector<int32_t>& tokens);

}  // namespace blend::test
