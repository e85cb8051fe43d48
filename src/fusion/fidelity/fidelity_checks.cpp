#include "fusion/fidelity/fidelity_checks.h"

#include <new>
#include <utility>

#include "base/threads/thread_cap.h"
#include "engine/full_logits.h"
#include "engine/sequence.h"
#include "fusion/prompt/record_kind.h"

namespace blend {

FidelityChecks::FidelityChecks(std::shared_ptr<IdleWorker> worker,
                               std::shared_ptr<FidelityBook> book, const Options& options)
    : worker_(std::move(worker)), book_(std::move(book)), options_(options) {
  worker_->enter(*this);
}

void FidelityChecks::close() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    queue_.clear();
  }
  cancel_.request();
  worker_->leave(*this);
  changed_.notify_all();
}

std::optional<AnswerTrace> FidelityChecks::mark(Fused& fused) {
  if (forked() || options_.every == kNever) return std::nullopt;
  const RecordUse record = worst_record(fused.segments);
  if (record <= RecordUse::exact || fused.info.policy == BLEND_POLICY_FULL ||
      fused.sequence->n_rows() == 0) {
    return std::nullopt;
  }
  const uint64_t n_rows = reused_rows(fused.segments);
  const FidelityKey key(fused.sequence->model().fingerprint(), fused.info.policy, record, n_rows);
  const double share = fused.info.n_check_layers == 0 ? 0 : fused.info.ratio;
  const double ratio = usual_share(share, n_rows);
  book_->look(key.fingerprint);
  const bool known = book_->n_checks(key, ratio) >= kFirst;
  {
    const MutexLock lock(mutex_);
    if (closed_) return std::nullopt;
    bool chosen = ++n_fuses_ % options_.every == 0;
    if (!chosen && !known) chosen = first_[{key, rung_of(ratio)}]++ < kFirst;
    if (!chosen) return std::nullopt;
  }
  AnswerTrace trace(key, ratio, fused.sequence->n_rows(), options_.tokens);
  fused.info.flags |= BLEND_FUSION_CHECKED;
  return trace;
}

bool FidelityChecks::add(AnswerTrace trace, const Sequence& sequence) {
  if (forked() || trace.n_positions() == 0 || sequence.n_rows() < trace.n_prompt()) return false;
  if (!trace.claim()) return false;
  // The token at the last position is not needed: its logits come from the row before.
  const size_t n_answer =
      std::min<size_t>(trace.n_positions() - 1, sequence.n_rows() - trace.n_prompt());
  const std::vector<int32_t>& all = sequence.tokens();
  Job job{sequence.shared_model(), std::move(trace), {}, ThreadCap::current()};
  job.tokens.assign(all.begin(),
                    all.begin() + static_cast<int64_t>(job.trace.n_prompt() + n_answer));
  {
    const MutexLock lock(mutex_);
    if (closed_) return false;
    if (queue_.size() >= kMostQueued || !worker_->start()) {
      ++counts_.dropped;
      return false;
    }
    queue_.push_back(std::move(job));
  }
  worker_->notify();
  return true;
}

void FidelityChecks::run_all() {
  if (forked()) return;
  const Foreground::Hurry hurry(worker_->foreground());
  MutexLock lock(mutex_);
  changed_.wait(lock,
                [&]() BLEND_REQUIRES(mutex_) { return closed_ || (queue_.empty() && !working_); });
}

FidelityChecks::Counts FidelityChecks::counts() const {
  if (forked()) return {};
  const MutexLock lock(mutex_);
  Counts out = counts_;
  out.queued = queue_.size() + (working_ ? 1 : 0);
  return out;
}

Result<CheckedAnswer> FidelityChecks::check(const Job& job) {
  CheckedAnswer answer;
  const uint32_t first = job.trace.n_prompt() - 1;
  const ThreadCap cap(job.n_threads);
  BLEND_RETURN_IF_ERROR(full_logits(
      *job.model, job.tokens, first,
      [&](uint32_t row, std::span<const float> logits) {
        job.trace.compare(row - first, logits, answer);
        return Status::ok();
      },
      worker_->polite(cancel_, true)));
  return answer;
}

bool FidelityChecks::work() {
  MutexLock lock(mutex_);
  if (queue_.empty() || closed_) return false;
  std::optional<Job> job(std::move(queue_.front()));
  queue_.pop_front();
  working_ = true;
  lock.unlock();
  bool makes_way = false, done = false;
  try {
    auto answer = check(*job);
    makes_way = answer.status().code() == BLEND_E_CALLBACK;
    done = answer.is_ok();
    if (done) book_->observe(job->trace.key(), job->trace.ratio(), *answer);
  } catch (const std::bad_alloc&) {
    done = false;
  }
  if (!makes_way) job.reset();  // the model may be closed by now
  lock.lock();
  working_ = false;
  if (makes_way && !closed_) {
    try {
      queue_.push_front(std::move(*job));
    } catch (const std::bad_alloc&) {
      ++counts_.dropped;
    }
  } else if (done) {
    ++counts_.done;
  } else if (!closed_) {
    ++counts_.dropped;
  }
  changed_.notify_all();
  return true;
}

}  // namespace blend
