#include "fusion/options.h"

namespace blend {
namespace {

constexpr double kMostTempered = 100;  // far beyond any use

Status check_tempering(const char* name, double value) {
  if (value > 0.0 && value <= kMostTempered) return Status::ok();  // NaN fails
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s %g must lie in (0, %g]", name, value,
                    kMostTempered);
}

}  // namespace

std::vector<int32_t> prompt_head(std::span<const Segment> segments) {
  std::vector<int32_t> head;
  for (const Segment& s : segments) {
    if (s.kind == SegmentKind::chunk) return head;
    if (s.tokens.has_value()) head.insert(head.end(), s.tokens->begin(), s.tokens->end());
  }
  return {};
}

void resolve_policy(std::span<const Segment> segments, uint32_t n_layers, bool steps, Policy wanted,
                    FuseOptions& o) {
  if (o.policy != Policy::automatic) return;
  const bool asks = !segments.empty() && segments.back().kind == SegmentKind::question &&
                    segments.back().tokens.has_value() && !segments.back().tokens->empty();
  const bool can = asks && !steps && n_layers > 1 && o.check_layers.empty();
  o.policy = can ? wanted : Policy::hkvd;
  o.chosen_for_host = o.policy == Policy::cascade;
}

Status check_options(bool has_store, const FuseOptions& o) {
  const double ratio = o.ratio.ratio();
  if (!(ratio >= 0.0 && ratio <= 1.0)) {  // NaN fails too
    return make_error(BLEND_E_INVALID_ARGUMENT, "ratio %g must lie in [0, 1]", ratio);
  }
  BLEND_RETURN_IF_ERROR(check_tempering("ape_temperature", o.ape_temperature));
  BLEND_RETURN_IF_ERROR(check_tempering("ape_scale", o.ape_scale));
  if (!has_store && o.policy != Policy::full && o.on_miss != OnMiss::compute) {
    return {BLEND_E_INVALID_ARGUMENT,
            "a store is needed unless the policy is BLEND_POLICY_FULL or on_miss is "
            "BLEND_MISS_COMPUTE"};
  }
  return Status::ok();
}

}  // namespace blend
