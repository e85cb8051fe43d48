// The request for a fuse: segments and options of the ABI, checked and typed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/threads/cancel.h"
#include "blend/experimental.h"
#include "blend/report.h"
#include "fusion/request/policy_registry.h"
#include "fusion/request/ratio_request.h"
#include "fusion/request/schedule.h"
#include "profile/drift.h"
#include "profile/profile.h"

namespace blend {

enum class SegmentKind : uint32_t {
  prefix = BLEND_SEGMENT_PREFIX,
  chunk = BLEND_SEGMENT_CHUNK,
  text = BLEND_SEGMENT_TEXT,
  question = BLEND_SEGMENT_QUESTION,
};

enum class OnMiss : uint32_t {
  precompute = BLEND_MISS_PRECOMPUTE,
  compute = BLEND_MISS_COMPUTE,
  fail = BLEND_MISS_FAIL,
  compute_store = BLEND_MISS_COMPUTE_STORE,
};

// Whether calibration trusts a fuse (trust.h).
enum class Trust : uint32_t {
  unknown,  // there is no profile, or nothing is approximated
  vouched,  // the profile measured this kind of fusing, and it keeps the limits at this ratio
  doubted,  // the profile did not measure that
};

enum class OnUntrusted : uint32_t {
  fuse = BLEND_ON_UNTRUSTED_FUSE,
  full = BLEND_ON_UNTRUSTED_FULL,
  fail = BLEND_ON_UNTRUSTED_FAIL,
};

struct Segment {
  SegmentKind kind = SegmentKind::text;
  std::optional<std::vector<int32_t>> tokens;  // none: a chunk known by its id alone
  std::optional<Sha256> id;
};

// One policy of a union and its share of the budget, relative to the other shares.
struct PolicyTerm {
  Policy policy = Policy::hkvd;
  double share = 1;
};

// The host's scores of the candidate rows at a check layer: the largest go on. rows, deviation,
// scores: [n]; scores begin as the deviations. Non-zero stops the fuse.
using ScoreFn = std::function<int32_t(uint32_t layer, std::span<const uint32_t> rows,
                                      std::span<const float> deviation, std::span<float> scores)>;

// How rows are scored by their deviation: BLEND_METRIC_*.
struct RowMetric {
  DeviationMetric of = DeviationMetric::v;
  bool weighed = false;  // by the attention that the row gets inside its chunk

  static constexpr uint32_t kMost = BLEND_METRIC_KV_WEIGHED;
  static constexpr uint32_t kWeighed = BLEND_METRIC_V_WEIGHED & ~BLEND_METRIC_V;
  static bool is_code(uint32_t code) { return code <= kMost && (code & BLEND_METRIC_KV) != 0; }
  static RowMetric from_code(uint32_t code) {
    return {static_cast<DeviationMetric>(code & BLEND_METRIC_KV), (code & kWeighed) != 0};
  }
  uint32_t code() const { return static_cast<uint32_t>(of) | (weighed ? kWeighed : 0u); }
};
// The metric that is reported for `attention`, which measures no deviation.
inline constexpr RowMetric kAttentionMetric{DeviationMetric::v, true};

// How the host wants rows that are not recomputed corrected.
enum class DriftUse : uint32_t {
  automatic = BLEND_CORRECTION_AUTO,
  off = BLEND_CORRECTION_OFF,
  on = BLEND_CORRECTION_ON,
  unguarded = BLEND_CORRECTION_UNGUARDED,
  shift = BLEND_CORRECTION_SHIFT,
};

// The host's calibration for a fuse.
struct Calibration {
  const Profile* profile = nullptr;  // of the model (check_profile); null: none
  // The profile's maps; null: it has none. If `profile` is null the maps are used unconditionally.
  std::shared_ptr<const Drift> drift = {};
  std::shared_ptr<const Drift> stored_drift = {};  // those of stored rows
  DriftUse correction = DriftUse::automatic;
  OnUntrusted on_untrusted = OnUntrusted::fuse;
};

// The options of a fuse. resolve.h turns them into a ResolvedFuse.
struct FuseOptions {
  Policy policy = Policy::hkvd;
  DeviationRule deviation;
  bool weighed = true;  // RowMetric
  RowMetric metric() const { return {deviation.metric, weighed}; }
  uint32_t check_layer = 1;
  RatioRequest ratio;
  Schedule check_layers;  // empty: check_layer and ratio
  std::vector<PolicyTerm> terms;
  uint64_t seed = 0;
  ScoreFn score;
  double ape_temperature = 0.9;
  double ape_scale = 0.9;
  OnMiss on_miss = OnMiss::precompute;
  uint32_t reserve_tokens = 256;
  std::vector<int32_t> chunk_prefix;
  bool after_head = false;  // chunk_prefix is the prompt's head, since the host gave none
  std::string tenant;
  Calibration calibration;
};

// The caller's request. It is never changed.
struct FuseRequest {
  std::vector<Segment> segments;
  FuseOptions options;
  Watch watch;
};

// The tokens of a prompt before its first chunk; empty for a prompt without chunks.
std::vector<int32_t> prompt_head(std::span<const Segment> segments);

}  // namespace blend
