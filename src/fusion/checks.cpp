#include "fusion/checks.h"

namespace blend {

namespace {

constexpr double kMostTempered = 100;  // far beyond any use

Status check_tempering(const char* name, double value) {
  if (value > 0.0 && value <= kMostTempered) return Status::ok();  // NaN fails
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s %g must lie in (0, %g]", name, value,
                    kMostTempered);
}

}  // namespace

Status check_options(bool has_store, const FuseOptions& o) {
  if (!(o.ratio >= 0.0 && o.ratio <= 1.0)) {  // NaN fails too
    return make_error(BLEND_E_INVALID_ARGUMENT, "ratio %g must lie in [0, 1]", o.ratio);
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

Result<Schedule> checks_of(const SelectionPolicy* policy, const FuseOptions& options,
                           uint32_t n_layers) {
  if (policy == nullptr) {
    if (options.check_layers.empty()) return Schedule{};
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "check_layers are given, but the policy chooses no rows at any layer"};
  }
  const bool measures = !policy->needs().nothing();
  if (!options.check_layers.empty()) {
    BLEND_RETURN_IF_ERROR(check_schedule(options.check_layers, measures ? 1 : 0, n_layers));
    return options.check_layers;
  }
  if (!measures) return Schedule{{0, options.ratio}};
  // Layer 0's K, V depend on no other row: there is no deviation to measure.
  if (n_layers > 1 && (options.check_layer < 1 || options.check_layer >= n_layers)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "check_layer %u must lie in 1 .. %u for this model",
                      options.check_layer, n_layers - 1);
  }
  return Schedule{{options.check_layer, options.ratio}};
}

Status check_drift(const FuseOptions& o, const Schedule& checks) {
  if (o.drift == nullptr || !o.drift_required) return Status::ok();
  if (!checks.empty() && checks.front().layer == o.drift->check_layer()) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT,
                    "BLEND_CORRECTION_ON needs a policy whose first check layer is %u, where the "
                    "drift maps were fitted",
                    o.drift->check_layer());
}

uint32_t first_stored_layer(const SelectionPolicy* policy, const Schedule& checks) {
  if (policy == nullptr) return 0;
  const uint32_t first_check = checks.front().layer;
  // Up to the first check every row keeps its fresh K, V; a measurement there needs the stored too.
  if (policy->needs().nothing() && first_check > 0) return first_check + 1;
  return first_check;
}

}  // namespace blend
