#include "fusion/fuse.h"

#include <algorithm>

#include "fusion/account.h"
#include "fusion/auto_ratio.h"
#include "fusion/checks.h"
#include "fusion/clock.h"
#include "fusion/pass.h"
#include "fusion/plan.h"
#include "fusion/policy/policy.h"

namespace blend {
namespace {

Status check_drift(const FuseOptions& o, const Schedule& checks) {
  if (o.drift == nullptr || !o.drift_required) return Status::ok();
  if (!checks.empty() && checks.front().layer == o.drift->check_layer()) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT,
                    "BLEND_CORRECTION_ON needs a policy whose first check layer is %u, where the "
                    "drift maps were fitted",
                    o.drift->check_layer());
}

// What a policy needs of the prompt.
Status check_prompt(const SelectionPolicy* policy, const Plan& plan) {
  if (policy == nullptr || !policy->needs().question_attention) return Status::ok();
  const PlannedSegment& last = plan.segments.back();
  if (last.kind == SegmentKind::question && last.n_rows > 0) return Status::ok();
  return {BLEND_E_INVALID_ARGUMENT,
          "BLEND_POLICY_QUESTION needs a prompt whose last segment is a question with tokens"};
}

// BLEND_RATIO_AUTO: false where there is nothing to choose, or nothing to choose by.
bool choose_by_cost(const StoreAccess& store, const FuseOptions& options, uint32_t n_layers,
                    Plan& plan, Schedule& checks) {
  if (options.auto_ratio == nullptr || store.reads == nullptr || checks.empty()) return false;
  const double bytes_per_s = store.reads->bytes_per_s();
  if (!options.check_layers.empty() || bytes_per_s == 0.0) return false;
  Check& check = checks.front();
  check.ratio = control(plan, check.layer, n_layers, *options.auto_ratio, bytes_per_s, check.ratio);
  return true;
}

// A sequence lent to a pass: however the pass ends, by an exception too, the owner has it again
// unless it was kept.
class Loan {
 public:
  Loan(std::unique_ptr<Sequence>& owner, std::unique_ptr<Sequence>& borrower)
      : owner_(owner), borrower_(borrower) {
    borrower_ = std::move(owner_);
  }
  ~Loan() {
    if (!kept_) owner_ = std::move(borrower_);
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;
  void keep() { kept_ = true; }

 private:
  std::unique_ptr<Sequence>& owner_;
  std::unique_ptr<Sequence>& borrower_;
  bool kept_ = false;
};

// Fuses behind the rows of `resident`, which may be null. It is used up only on success.
Result<Fused> fuse_behind(const std::shared_ptr<const Model>& model,
                          std::unique_ptr<Sequence>& resident, const StoreAccess& store,
                          const std::vector<Segment>& segments, const FuseOptions& options,
                          const Watch& watch) {
  const Stopwatch clock;
  BLEND_RETURN_IF_ERROR(check_options(store.store != nullptr, options));
  BLEND_ASSIGN(const std::unique_ptr<SelectionPolicy> policy, make_policy(options));
  BLEND_ASSIGN(Schedule checks, checks_of(policy.get(), options, model->config().n_layers));
  BLEND_RETURN_IF_ERROR(check_drift(options, checks));
  Planner planner(*model, store.store, !store.read_only, store.kv_dtype, options);
  const std::span<const int32_t> tokens =
      resident == nullptr ? std::span<const int32_t>() : std::span(resident->tokens());
  BLEND_ASSIGN(Plan plan, planner.build(segments, tokens, watch));
  BLEND_RETURN_IF_ERROR(check_prompt(policy.get(), plan));
  const bool chosen = choose_by_cost(store, options, model->config().n_layers, plan, checks);
  const uint64_t plan_ns = clock.now_ns() - plan.miss_ns;

  // A damaged chunk shows when its bytes are read. It is then a miss, and the pass begins again:
  // rare enough that the lost time does not matter, and each round mends one segment.
  for (;;) {
    Fused out;
    Loan loan(resident, out.sequence);
    Pass pass(model, plan, options, policy.get(), checks, clock, out);
    const Status status = pass.run(watch);
    if (status.is_ok()) {
      account_segments(plan, out);
      account_totals(plan, options, checks, plan_ns, clock, out);
      if (chosen) {
        out.info.ratio = checks.front().ratio;
        out.info.flags |= BLEND_FUSION_RATIO_CHOSEN;
      }
      // What was staged from memory would look like a very fast device.
      if (store.reads != nullptr && plan.n_misses == 0) {
        store.reads->add(out.info.bytes_loaded, out.info.load_ns);
      }
      loan.keep();
      return out;
    }
    const size_t index = pass.damaged_segment();
    if (status.code() != BLEND_E_CORRUPT || plan.segments[index].source != Source::store) {
      return status;
    }
    BLEND_RETURN_IF_ERROR(planner.replace_damaged(plan, index, status, watch));
  }
}

}  // namespace

Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   const std::vector<Segment>& segments, const FuseOptions& options,
                   const Watch& watch) {
  std::unique_ptr<Sequence> none;
  return fuse_behind(model, none, store, segments, options, watch);
}

Status extend(Fused& fused, const StoreAccess& store, const std::vector<Segment>& segments,
              const FuseOptions& options, const Watch& watch) {
  const std::shared_ptr<const Model> model = fused.sequence->shared_model();
  // Room for the joined account first: once the rows are there nothing may fail.
  std::vector<blend_segment_info> all_segments;
  std::vector<uint32_t> all_selected;
  all_segments.reserve(fused.segments.size() + segments.size());
  all_selected.reserve(model->context_length());
  all_segments = fused.segments;
  all_selected = fused.selected;

  BLEND_ASSIGN(Fused more, fuse_behind(model, fused.sequence, store, segments, options, watch));
  all_segments.insert(all_segments.end(), more.segments.begin(), more.segments.end());
  all_selected.insert(all_selected.end(), more.selected.begin(), more.selected.end());
  std::copy(fused.deviation.begin(), fused.deviation.end(), more.deviation.begin());
  more.segments = std::move(all_segments);
  more.selected = std::move(all_selected);
  more.info.n_segments = more.segments.size();
  more.info.flags |= fused.info.flags & (BLEND_FUSION_EDITED | BLEND_FUSION_RESTORED);
  fused = std::move(more);
  return Status::ok();
}

}  // namespace blend
