// What a fuse is asked for: segments and options, as the ABI gives them but checked and typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "blend/blend.h"

namespace blend {

enum class SegmentKind : uint32_t {
  prefix = BLEND_SEGMENT_PREFIX,
  chunk = BLEND_SEGMENT_CHUNK,
  text = BLEND_SEGMENT_TEXT,
  question = BLEND_SEGMENT_QUESTION,
};

enum class Policy : uint32_t {
  full = BLEND_POLICY_FULL,
  reuse = BLEND_POLICY_REUSE,
  hkvd = BLEND_POLICY_HKVD,
};

enum class OnMiss : uint32_t {
  precompute = BLEND_MISS_PRECOMPUTE,
  compute = BLEND_MISS_COMPUTE,
  fail = BLEND_MISS_FAIL,
};

struct Segment {
  SegmentKind kind = SegmentKind::text;
  std::optional<std::vector<int32_t>> tokens;  // none: a chunk known by its id alone
  std::optional<Sha256> id;
};

struct FuseOptions {
  Policy policy = Policy::hkvd;
  DeviationMetric metric = DeviationMetric::v;
  uint32_t check_layer = 1;
  double ratio = 0.15;
  OnMiss on_miss = OnMiss::precompute;
  uint32_t reserve_tokens = 256;
  std::vector<int32_t> chunk_prefix;
  std::string tenant;
};

}  // namespace blend
