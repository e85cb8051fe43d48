#include "fusion/run/batch.h"

#include <algorithm>
#include <functional>

#include "control/pass_cost.h"
#include "fusion/idle/deferred_prefill.h"
#include "fusion/resolve/agreement.h"
#include "fusion/resolve/auto_ratio.h"
#include "fusion/resolve/fidelity_book.h"
#include "fusion/resolve/trust.h"
#include "fusion/run/report.h"

namespace blend {
namespace {

// Bound on the memory of staged layers, so that a slow disk does not cost a second copy of the
// prompts' caches.
constexpr uint64_t kRingBytes = 256ull << 20;

// Lends a sequence to a pass. The owner gets it back however the pass ends, by an exception too,
// unless the pass keeps it.
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
    : model_(model), store_(store), n_layers_(model->config().n_kept()), entries_(jobs.size()) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    entries_[i].job = &jobs[i];
    entries_[i].fuse = jobs[i].fuse;
  }
}

std::vector<Result<Fused>> Batch::run(std::unique_ptr<Sequence>& resident) {
  std::vector<Result<Fused>> results;
  results.reserve(entries_.size());  // nothing may fail once the rows are in a resident sequence
  const auto waited_for = model_->runtime().begin_call();
  if (!waited_for.is_ok()) {
    for (size_t i = 0; i < entries_.size(); ++i) results.emplace_back(waited_for.status());
    return results;
  }
  if (store_.fidelity != nullptr) store_.fidelity->look(model_->fingerprint());  // no snapshot yet
  const std::span<const int32_t> tokens =
      resident == nullptr ? std::span<const int32_t>() : std::span(resident->tokens());
  for (Entry& e : entries_) {
    settle(e, prepare(e, &e == &entries_.front() ? tokens : std::span<const int32_t>()));
  }
  // Damage is found when the chunk's bytes are read. The chunk is then a miss, and the passes begin
  // again. That is rare, so the lost time does not matter. Each round replaces one chunk.
  while (!round(resident)) {
  }
  for (Entry& e : entries_) {
    if (e.alive()) {
      results.emplace_back(std::move(e.out));
    } else {
      results.emplace_back(std::move(e.status));
    }
  }
  return results;
}

void Batch::settle(Entry& entry, const Status& status) {
  if (status.is_ok()) return;
  entry.status = status;
  entry.end_round();
}

// ---- Before the layers

Status Batch::prepare(Entry& e, std::span<const int32_t> resident) {
  const FuseRequest& request = e.job->request;
  const uint64_t begin = clock_.now_ns();
  e.builder =
      std::make_unique<PromptBuilder>(*model_, store_.store, !store_.read_only, store_.kv_dtype,
                                      e.options(), e.fuse, e.job->machine.prefill, lookup_);
  BLEND_ASSIGN(e.prompt, e.builder->build(request.segments, resident, request.watch));
  const Policy asked = e.fuse.policy;
  BLEND_ASSIGN(e.fuse, judge_records(e.options(), e.fuse, e.prompt));
  if (e.fuse.policy != asked) return prepare(e, resident);
  if (must_fall_back(e.fuse, request, e.prompt)) {
    BLEND_ASSIGN(e.fuse, fall_back(e.fuse, request));
  }
  if (const auto ratio =
          agreeing_ratio(store_.fidelity, *model_, e.options().ratio, e.fuse, e.prompt)) {
    e.fuse = at_ratio(e.fuse, *ratio);
  }
  const double spent_s = static_cast<double>(clock_.now_ns()) * 1e-9;
  e.fuse = choose_ratio(e.fuse, e.options().ratio,
                        {store_.reads, &model_->config(), spent_s, e.job->machine}, e.prompt);
  e.plan_ns = clock_.now_ns() - begin - e.prompt.miss_ns;
  return Status::ok();
}

uint32_t Batch::choose_depth(const LayerFeed& feed) const {
  const double bytes_per_s = store_.reads == nullptr ? 0.0 : store_.reads->per_second();
  const double rows_per_s = model_->compute_meter().per_second();  // rows through one layer
  double row_s = rows_per_s == 0.0 ? 0.0 : 1.0 / rows_per_s;
  std::vector<uint64_t> rows(n_layers_, 0);
  for (const Entry& e : entries_) {
    if (!e.alive()) continue;
    const std::vector<uint64_t> own = e.session->selection().expected_rows();
    std::transform(rows.begin(), rows.end(), own.begin(), rows.begin(), std::plus<>());
    const PrefillTimes* const times = e.job->machine.prefill;
    if (row_s == 0.0 && times != nullptr) {
      row_s = times->seconds(e.prompt.n_rows()) / (e.prompt.n_rows() * n_layers_);
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
  const uint64_t begin = clock_.now_ns();
  for (Entry& e : entries_) {
    if (!e.alive()) continue;
    e.session = std::make_unique<LayerSession>(model_->backend(), model_->config(), e.prompt,
                                               e.fuse, e.options().deviation, clock_);
    settle(e, e.session->begin());
    if (!e.alive()) continue;
    e.pass =
        std::make_unique<Pass>(model_, e.prompt, e.options(), e.fuse, *e.session, clock_, e.out);
    e.feed = feed.subscribe(e.prompt, e.session->selection().first_stored_layer());
  }
  const uint32_t depth = choose_depth(feed);
  BLEND_RETURN_IF_ERROR(feed.start(depth));
  for (Entry& e : entries_) {
    if (!e.alive()) continue;
    if (!e.feed->segments().empty()) e.out.info.ring_depth = depth;
    e.out.info.prepare_ns = clock_.now_ns() - begin;
  }
  return Status::ok();
}

// ---- The layers

bool Batch::run_layers(LayerFeed& feed) {
  for (Entry& e : entries_) {
    if (e.alive()) settle(e, e.pass->prepare(*e.feed));
  }
  for (uint32_t layer = 0; layer < n_layers_; ++layer) {
    for (Entry& e : entries_) {
      if (!e.alive()) continue;
      Status status = e.watch().report(layer, n_layers_);
      if (status.is_ok()) status = e.pass->layer(layer, e.watch());
      if (status.code() == BLEND_E_CORRUPT && feed.damaged().has_value()) {
        if (replace_damaged(*feed.damaged(), status)) return false;
      }
      settle(e, status);
    }
  }
  return true;
}

bool Batch::round(std::unique_ptr<Sequence>& resident) {
  for (Entry& e : entries_) e.out = {};
  // A copy: the pass appends to the sequence, and gives it back if it fails.
  const std::vector<int32_t> resident_tokens =
      resident == nullptr ? std::vector<int32_t>() : resident->tokens();
  Loan loan(resident, entries_.front().out.sequence);
  const Runtime& runtime = model_->runtime();
  // The pool is free while a device computes.
  ThreadPool* const helpers =
      runtime.backend().device_memory() != nullptr ? &runtime.pool() : nullptr;
  LayerFeed feed(runtime.backend(), n_layers_, clock_,
                 store_.use_device_tier ? runtime.device_tier() : nullptr, helpers);
  const EndOfRound end{entries_};  // before the feed goes, by an exception too
  bool done = true;
  if (const Status status = begin_passes(feed); status.is_ok()) {
    done = run_layers(feed);
  } else {
    for (Entry& e : entries_) settle(e, status);
  }
  if (done && act_on_doubts(resident_tokens)) done = false;
  for (Entry& e : entries_) {
    if (done && e.alive()) finish(e);
  }
  if (!done) return false;
  // Layers staged from memory would make the disk look very fast.
  const bool from_store = std::all_of(entries_.begin(), entries_.end(),
                                      [](const Entry& e) { return e.prompt.n_misses == 0; });
  if (store_.reads != nullptr && from_store) feed.tell(*store_.reads);
  if (entries_.front().alive()) loan.keep();
  return true;
}

bool Batch::act_on_doubts(std::span<const int32_t> resident) {
  bool again = false;
  for (Entry& e : entries_) {
    const OnUntrusted what = e.options().calibration.on_untrusted;
    if (!e.alive() || what == OnUntrusted::fuse || e.session->n_rows_corrected() == 0 ||
        e.session->drift_share() >= kLeastDriftShare) {
      continue;
    }
    if (what == OnUntrusted::fail) {
      settle(e, drift_doubt(e.session->drift_share()));
      continue;
    }
    e.end_round();
    e.fuse = full_instead(e.fuse);
    settle(e, prepare(e, &e == &entries_.front() ? resident : std::span<const int32_t>()));
    again = true;
  }
  return again;
}

bool Batch::replace_damaged(const Sha256& id, const Status& damage) {
  bool reported = false;
  for (Entry& e : entries_) {
    for (size_t i = 0; e.alive() && i < e.prompt.segments.size(); ++i) {
      const PromptSegment& s = e.prompt.segments[i];
      if (s.source != Source::store || s.id != id) continue;
      if (!reported && store_.store != nullptr) store_.store->report_damage(id, damage);
      reported = true;
      // This destroys the segment's source. The reader does not use it any more: it has stopped.
      settle(e, e.builder->replace_damaged(e.prompt, i, e.watch()));
    }
  }
  return reported;
}

uint64_t Batch::rows_through(const Entry& e, uint32_t layer) {
  const blend_layer_info& l = e.out.layers[layer];
  // At the last asked layer the question's rows stop after their attention.
  return l.rows_full + (layer < e.session->asked().last ? l.rows_asked : 0);
}

void Batch::learn_pace(const Entry& e) const {
  const blend_fusion_report& info = e.out.info;
  const double full_s = e.job->machine.prefill->seconds(e.prompt.n_rows());
  const RowCost row = RowCost::of(model_->config(), e.prompt.n_rows(), full_s);
  double expected_s = 0;
  uint64_t placed = 0;
  for (const blend_layer_info& l : e.out.layers) {
    expected_s += static_cast<double>(l.rows_kv + l.rows_asked) * row.kv_s +
                  row.rest(rows_through(e, l.layer));
    placed += l.rows_placed;
  }
  Pace& pace = *e.job->machine.pace;
  pace.add_computed(expected_s / full_s, static_cast<uint64_t>(expected_s * 1e9),
                    info.compute_ns + info.select_ns);
  pace.add_placed(placed, info.place_ns);
}

void Batch::finish(Entry& e) {
  settle(e, e.pass->finish());
  if (!e.alive()) return;
  e.session->report(e.options(), e.plan_ns, e.out);
  for (DeferredChunk& chunk : e.prompt.later) {
    const bool is_miss = chunk.is_miss;
    if (store_.later != nullptr && store_.later->add(model_, std::move(chunk)) && is_miss) {
      ++e.out.info.n_misses_queued;
    }
  }
  report_end(clock_, e.out);
  uint64_t row_layers = 0;
  for (uint32_t layer = 0; layer < n_layers_; ++layer) row_layers += rows_through(e, layer);
  model_->compute_meter().add(row_layers, e.out.info.compute_ns);
  if (e.job->machine.prefill != nullptr) learn_pace(e);
  settle(e, e.watch().report(n_layers_, n_layers_));
  // A cancel at the last report comes before this, and leaves a resident sequence as it was.
  if (e.alive()) e.pass->commit();
}

}  // namespace blend
