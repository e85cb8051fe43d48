#include "fusion/batch.h"

#include <algorithm>
#include <functional>

#include "fusion/account.h"
#include "fusion/auto_ratio.h"
#include "fusion/checks.h"
#include "fusion/later_prefill.h"

namespace blend {
namespace {

// Staged layers in memory at once: a stated budget, so that a slow device does not cost a second
// copy of the prompts' caches.
constexpr uint64_t kRingBytes = 256ull << 20;

// What a policy needs of the prompt.
Status check_prompt(const SelectionPolicy* policy, const Plan& plan) {
  if (policy == nullptr || !policy->needs().question_attention) return Status::ok();
  const PlannedSegment& last = plan.segments.back();
  if (last.kind == SegmentKind::question && last.n_rows > 0) return Status::ok();
  return {BLEND_E_INVALID_ARGUMENT,
          "BLEND_POLICY_QUESTION needs a prompt whose last segment is a question with tokens"};
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

}  // namespace

Batch::Batch(const std::shared_ptr<const Model>& model, const StoreAccess& store,
             std::span<const FuseJob> jobs)
    : model_(model), store_(store), n_layers_(model->config().n_layers), prompts_(jobs.size()) {
  for (size_t i = 0; i < jobs.size(); ++i) prompts_[i].job = &jobs[i];
}

std::vector<Result<Fused>> Batch::run(std::unique_ptr<Sequence>& resident) {
  const Foreground::Scope waited_for(model_->runtime().foreground());
  const std::span<const int32_t> tokens =
      resident == nullptr ? std::span<const int32_t>() : std::span(resident->tokens());
  for (Prompt& p : prompts_) {
    settle(p, prepare(p, &p == &prompts_.front() ? tokens : std::span<const int32_t>()));
  }
  // A damaged chunk shows when its bytes are read. It is then a miss, and the passes begin again:
  // rare enough that the lost time does not matter, and each round mends one chunk.
  while (!round(resident)) {
  }
  std::vector<Result<Fused>> results;
  results.reserve(prompts_.size());
  for (Prompt& p : prompts_) {
    if (p.alive()) {
      results.emplace_back(std::move(p.out));
    } else {
      results.emplace_back(std::move(p.status));
    }
  }
  return results;
}

void Batch::settle(Prompt& prompt, const Status& status) {
  if (status.is_ok()) return;
  prompt.status = status;
  prompt.pass.reset();
  prompt.feed.reset();
}

// ---- Before the layers

Status Batch::prepare(Prompt& p, std::span<const int32_t> resident) {
  const FuseOptions& options = p.job->options;
  const uint64_t begin = clock_.now_ns();
  BLEND_RETURN_IF_ERROR(check_options(store_.store != nullptr, options));
  BLEND_ASSIGN(p.policy, make_policy(options));
  BLEND_ASSIGN(p.checks, checks_of(p.policy.get(), options, n_layers_));
  BLEND_RETURN_IF_ERROR(check_drift(options, p.checks));
  p.planner = std::make_unique<Planner>(*model_, store_.store, !store_.read_only, store_.kv_dtype,
                                        options, lookup_);
  BLEND_ASSIGN(p.plan, p.planner->build(p.job->segments, resident, p.job->watch));
  BLEND_RETURN_IF_ERROR(check_prompt(p.policy.get(), p.plan));
  p.ratio_chosen = choose_by_cost(store_.reads, options, n_layers_, p.plan, p.checks);
  p.plan_ns = clock_.now_ns() - begin - p.plan.miss_ns;
  return Status::ok();
}

uint32_t Batch::choose_depth(const LayerFeed& feed) const {
  const double bytes_per_s = store_.reads == nullptr ? 0.0 : store_.reads->per_second();
  const double rows_per_s = model_->compute_meter().per_second();  // rows through one layer
  double row_s = rows_per_s == 0.0 ? 0.0 : 1.0 / rows_per_s;
  std::vector<uint64_t> rows(n_layers_, 0);
  for (const Prompt& p : prompts_) {
    if (!p.alive()) continue;
    const std::vector<uint64_t> own = p.pass->expected_rows();
    std::transform(rows.begin(), rows.end(), own.begin(), rows.begin(), std::plus<>());
    const PrefillTimes* const times = p.job->options.auto_ratio;
    if (row_s == 0.0 && times != nullptr) {
      row_s = times->seconds(p.plan.n_rows()) / (p.plan.n_rows() * n_layers_);
    }
  }
  if (bytes_per_s == 0.0 || row_s == 0.0) return kUsualRingDepth;
  const std::vector<uint64_t> bytes = feed.layer_bytes();
  std::vector<LayerCost> layers(n_layers_);
  for (uint32_t i = 0; i < n_layers_; ++i) {
    layers[i] = {static_cast<double>(bytes[i]) / bytes_per_s, static_cast<double>(rows[i]) * row_s};
  }
  return ring_depth(layers, *std::max_element(bytes.begin(), bytes.end()), kRingBytes);
}

Status Batch::begin_passes(LayerFeed& feed) {
  for (Prompt& p : prompts_) {
    if (!p.alive()) continue;
    p.pass = std::make_unique<Pass>(model_, p.plan, p.job->options, p.policy.get(), p.checks,
                                    clock_, p.out);
    p.feed = feed.subscribe(p.plan, p.pass->first_stored_layer());
  }
  const uint64_t begin = clock_.now_ns();
  const uint32_t depth = choose_depth(feed);
  BLEND_RETURN_IF_ERROR(feed.start(depth));
  for (Prompt& p : prompts_) {
    if (!p.alive()) continue;
    if (!p.feed->segments().empty()) p.out.info.ring_depth = depth;
    p.out.info.prepare_ns = clock_.now_ns() - begin;
  }
  return Status::ok();
}

// ---- The layers

bool Batch::run_layers(LayerFeed& feed) {
  for (Prompt& p : prompts_) {
    if (p.alive()) settle(p, p.pass->prepare(*p.feed));
  }
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    for (Prompt& p : prompts_) {
      if (!p.alive()) continue;
      Status status = p.job->watch.report(layer, n_layers_);
      if (status.is_ok()) status = p.pass->layer(layer, p.job->watch);
      if (status.code() == BLEND_E_CORRUPT && feed.damaged().has_value()) {
        if (replace_damaged(*feed.damaged(), status)) return false;
      }
      settle(p, status);
    }
  }
  return true;
}

bool Batch::round(std::unique_ptr<Sequence>& resident) {
  for (Prompt& p : prompts_) p.out = {};
  Loan loan(resident, prompts_.front().out.sequence);
  LayerFeed feed(model_->backend(), n_layers_, clock_,
                 store_.use_device_tier ? model_->runtime().device_tier() : nullptr);
  const EndOfRound end{prompts_};  // before the feed goes, by an exception too
  bool done = true;
  if (const Status status = begin_passes(feed); status.is_ok()) {
    done = run_layers(feed);
  } else {
    for (Prompt& p : prompts_) settle(p, status);
  }
  for (Prompt& p : prompts_) {
    if (done && p.alive()) finish(p);
  }
  if (!done) return false;
  // What was staged from memory would look like a very fast device.
  const bool from_store = std::all_of(prompts_.begin(), prompts_.end(),
                                      [](const Prompt& p) { return p.plan.n_misses == 0; });
  if (store_.reads != nullptr && from_store) store_.reads->add(feed.read_bytes(), feed.read_ns());
  if (prompts_.front().alive()) loan.keep();
  return true;
}

bool Batch::replace_damaged(const Sha256& id, const Status& damage) {
  bool reported = false;
  for (Prompt& p : prompts_) {
    for (size_t i = 0; p.alive() && i < p.plan.segments.size(); ++i) {
      const PlannedSegment& s = p.plan.segments[i];
      if (s.source != Source::store || s.id != id) continue;
      if (!reported && store_.store != nullptr) store_.store->report_damage(id, damage);
      reported = true;
      // The segment's source goes, which the reader might use: it has stopped at its error.
      settle(p, p.planner->replace_damaged(p.plan, i, p.job->watch));
    }
  }
  return reported;
}

void Batch::finish(Prompt& p) {
  settle(p, p.pass->finish());
  if (!p.alive()) return;
  account_segments(p.plan, p.out);
  account_totals(p.plan, p.job->options, p.checks, p.ratio_chosen, p.plan_ns, p.out);
  for (LaterChunk& chunk : p.plan.later) {
    if (store_.later != nullptr && store_.later->add(model_, std::move(chunk))) {
      ++p.out.info.n_misses_queued;
    }
  }
  account_end(clock_, p.out);
  uint64_t row_layers = 0;
  for (const blend_layer_info& l : p.out.layers) row_layers += l.rows_full;
  model_->compute_meter().add(row_layers, p.out.info.compute_ns);
  settle(p, p.job->watch.report(n_layers_, n_layers_));
}

}  // namespace blend
