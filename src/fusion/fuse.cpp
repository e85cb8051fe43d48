#include "fusion/fuse.h"

#include "fusion/account.h"
#include "fusion/clock.h"
#include "fusion/pass.h"
#include "fusion/plan.h"
#include "fusion/policy/policy.h"

namespace blend {
namespace {

// Where `policy` chooses: the schedule as given, or one check. A policy that measures nothing
// chooses before layer 0 unless a schedule says otherwise, so that the rows it leaves out cost
// nothing (as EPIC does). One layer has nothing to choose for: its K, V depend on no other row.
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

Status check_options(const StoreAccess& store, const FuseOptions& o) {
  if (!(o.ratio >= 0.0 && o.ratio <= 1.0)) {  // NaN fails too
    return make_error(BLEND_E_INVALID_ARGUMENT, "ratio %g must lie in [0, 1]", o.ratio);
  }
  if (store.store == nullptr && o.policy != Policy::full && o.on_miss != OnMiss::compute) {
    return {BLEND_E_INVALID_ARGUMENT,
            "a store is needed unless the policy is BLEND_POLICY_FULL or on_miss is "
            "BLEND_MISS_COMPUTE"};
  }
  return Status::ok();
}

// What a policy needs of the prompt.
Status check_prompt(const SelectionPolicy* policy, const Plan& plan) {
  if (policy == nullptr || !policy->needs().question_attention) return Status::ok();
  const PlannedSegment& last = plan.segments.back();
  if (last.kind == SegmentKind::question && last.n_rows > 0) return Status::ok();
  return {BLEND_E_INVALID_ARGUMENT,
          "BLEND_POLICY_QUESTION needs a prompt whose last segment is a question with tokens"};
}

}  // namespace

Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   const std::vector<Segment>& segments, const FuseOptions& options,
                   const Watch& watch) {
  const Stopwatch clock;
  BLEND_RETURN_IF_ERROR(check_options(store, options));
  BLEND_ASSIGN(const std::unique_ptr<SelectionPolicy> policy, make_policy(options));
  BLEND_ASSIGN(const Schedule checks, checks_of(policy.get(), options, model->config().n_layers));
  Planner planner(*model, store.store, !store.read_only, store.kv_dtype, options);
  BLEND_ASSIGN(Plan plan, planner.build(segments, watch));
  BLEND_RETURN_IF_ERROR(check_prompt(policy.get(), plan));
  const uint64_t plan_ns = clock.now_ns() - plan.miss_ns;

  // A damaged chunk shows when its bytes are read. It is then a miss, and the pass begins again:
  // rare enough that the lost time does not matter, and each round mends one segment.
  for (;;) {
    Fused out;
    Pass pass(model, plan, options, policy.get(), checks, clock, out);
    const Status status = pass.run(watch);
    if (status.is_ok()) {
      account_segments(plan, out);
      account_totals(plan, options, checks, plan_ns, clock, out);
      return out;
    }
    const size_t index = pass.damaged_segment();
    if (status.code() != BLEND_E_CORRUPT || plan.segments[index].source != Source::store) {
      return status;
    }
    BLEND_RETURN_IF_ERROR(planner.replace_damaged(plan, index, status, watch));
  }
}

}  // namespace blend
