#include "engine/shared_steps.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/threads/thread_cap.h"
#include "engine/sequence.h"

namespace blend {

// One call of run(), on its thread's stack.
struct SharedSteps::Caller {
  uint32_t n_threads = 0;  // its ThreadCap
  size_t n_left = 0;       // requests that are not done
  bool leads = false;
  CondVar wake;
};

SharedSteps::SharedSteps(const Model& model, uint32_t max_rows)
    : model_(model), max_rows_(max_rows) {
  parts_.reserve(max_rows);
  rows_.reserve(max_rows);
  tokens_.reserve(max_rows);
}

uint64_t SharedSteps::n_steps() const {
  const MutexLock lock(mutex_);
  return n_steps_;
}
uint64_t SharedSteps::n_rows() const {
  const MutexLock lock(mutex_);
  return n_rows_;
}

void SharedSteps::leave(Member& member) {
  const MutexLock lock(mutex_);
  if (member.expected_in_ != round_) return;
  member.expected_in_ = 0;
  if (--n_expected_ == 0) gathered_.notify_one();
}

void SharedSteps::arrive(Request& request, Caller& caller) {
  request.status = Status::ok();
  request.alone = false;
  request.caller = &caller;
  request.next = nullptr;
  *last_ = &request;
  last_ = &request.next;
  ++n_waiting_;
  if (request.member != nullptr && request.member->expected_in_ == round_) {
    request.member->expected_in_ = 0;
    --n_expected_;
  }
}

void SharedSteps::run(std::span<Request> requests) {
  if (requests.empty()) return;
  Caller caller;
  caller.n_threads = ThreadCap::current();
  caller.n_left = requests.size();
  MutexLock lock(mutex_);
  for (Request& request : requests) arrive(request, caller);
  if (leading_) {
    gathered_.notify_one();
    caller.wake.wait(lock, [&] { return caller.n_left == 0 || caller.leads; });
    // A caller that was given the lead when already done passes it on below.
    if (!caller.leads) return;
  }
  leading_ = true;
  while (caller.n_left > 0 || stepping_) {
    if (!stepping_) {
      gather(lock);
      begin();
    }
    if (!advance(caller)) break;
  }
  hand_over();
}

void SharedSteps::hand_over() {
  Caller* heir = nullptr;
  if (stepping_) {
    for (const Part& part : parts_) {
      if (part.request != nullptr) heir = part.request->caller;
    }
  } else if (first_ != nullptr) {
    heir = first_->caller;
  }
  leading_ = heir != nullptr;
  if (heir == nullptr) return;
  heir->leads = true;
  heir->wake.notify_one();
}

void SharedSteps::gather(MutexLock& lock) {
  if (contested_) {
    const auto theirs = ended_ + took_;
    while (Clock::now() < theirs) gathered_.wait_until(lock, theirs);
  }
  if (n_expected_ == 0) return;
  const auto patience = std::min<Clock::duration>(took_ / kPatienceShare, kMostPatience);
  gathered_.wait_until(lock, ended_ + patience, [&]() BLEND_REQUIRES(mutex_) {
    return n_expected_ == 0 || n_waiting_ >= max_rows_;
  });
  ++round_;
  n_expected_ = 0;
}

void SharedSteps::begin() {
  parts_.clear();
  rows_.clear();
  tokens_.clear();
  while (first_ != nullptr && parts_.size() < max_rows_) {
    Request* const request = first_;
    first_ = request->next;
    if (first_ == nullptr) last_ = &first_;
    --n_waiting_;
    parts_.push_back({request});
  }
  size_t spare = max_rows_ - parts_.size();
  for (Part& part : parts_) {
    Sequence& s = *part.request->sequence;
    const auto add = [&](int32_t token, uint32_t behind) {
      rows_.push_back({&s.cache(), &s.ropes(), s.n_rows() + behind, &s.tempered_, Status::ok()});
      tokens_.push_back(token);
    };
    part.first = static_cast<uint32_t>(rows_.size());
    part.n_ahead = static_cast<uint32_t>(std::min(spare, part.request->ahead.size()));
    part.n_rows = 1 + part.n_ahead;
    spare -= part.n_ahead;
    add(part.request->token, 0);
    for (uint32_t k = 0; k < part.n_ahead; ++k) add(part.request->ahead[k], k + 1);
  }
  layer_ = 0;
  stepping_ = true;
  began_ = Clock::now();
  ++n_steps_;
  n_rows_ += rows_.size();
}

// All threads that the step's calls may use together; 0: all there are.
uint32_t SharedSteps::cap() const {
  uint64_t sum = 0;
  for (const Part& part : parts_) {
    if (part.request == nullptr) continue;
    if (part.request->caller->n_threads == 0) return 0;
    sum += part.request->caller->n_threads;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(sum, UINT32_MAX));
}

void SharedSteps::finish(size_t i, Status status) {
  const Part& part = parts_[i];
  Request* const request = std::exchange(parts_[i].request, nullptr);
  for (uint32_t k = 0; k < part.n_rows; ++k) rows_[part.first + k].cache = nullptr;
  request->status = std::move(status);
  request->n_ahead = part.n_ahead;
  Caller& caller = *request->caller;
  if (--caller.n_left == 0) caller.wake.notify_one();
}

bool SharedSteps::any_failed(const Part& part) const {
  const auto first = rows_.begin() + part.first + 1;
  return std::any_of(first, first + part.n_ahead,
                     [](const StepRow& row) { return !row.failure.is_ok(); });
}

namespace {

// Must not throw for want of memory: without a leader all others would wait for ever.
Status check(const CancelToken* cancel) noexcept {
  try {
    return Watch{cancel, {}}.check();
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

}  // namespace

void SharedSteps::drop_cancelled() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.request == nullptr) continue;
    Status status = std::move(rows_[part.first].failure);
    rows_[part.first].failure = Status::ok();
    if (status.is_ok()) status = check(part.request->cancel);
    if (!status.is_ok()) {
      finish(i, std::move(status));
      continue;
    }
    // Draft tokens that fail may never be appended.
    while (part.n_ahead > 0 && any_failed(part)) --part.n_ahead;
  }
}

bool SharedSteps::advance(const Caller& leader) {
  const uint32_t n_layers = model_.config().n_layers;
  const ThreadCap threads(cap());
  // Where a device computes, the readers of fuses use the threads meanwhile.
  std::optional<ThreadPool::Run> run;
  if (model_.backend().device_memory() == nullptr) run.emplace(model_.runtime().pool());
  for (;;) {
    drop_cancelled();
    const bool any = std::any_of(parts_.begin(), parts_.end(),
                                 [](const Part& part) { return part.request != nullptr; });
    if (!any || layer_ > n_layers) break;
    if (leader.n_left == 0) return false;
    Status status = Status::ok();
    {
      const MutexUnlock unlocked(mutex_);
      try {
        if (layer_ == 0 && runs_recorded()) {
          status = compute_recorded();
          layer_ = n_layers;
        } else {
          status = layer_ < n_layers ? compute_layer() : compute_logits();
        }
      } catch (...) {
        status = Status::out_of_memory();
      }
    }
    ++layer_;
    if (status.is_ok()) continue;
    // No memory for scratch that all share: each may still find enough by itself.
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].request == nullptr) continue;
      parts_[i].request->alone = true;
      parts_[i].n_ahead = 0;
      finish(i, Status::ok());
    }
  }
  contested_ = run && run->end();
  end();
  return true;
}

void SharedSteps::end() {
  stepping_ = false;
  ended_ = Clock::now();
  took_ = ended_ - began_;
  ++round_;
  n_expected_ = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.request == nullptr) continue;
    if (Member* const member = part.request->member; member != nullptr) {
      member->expected_in_ = round_;
      ++n_expected_;
    }
    finish(i, std::move(rows_[part.first].failure));
  }
}

Status SharedSteps::make_room(uint32_t rows) {
  if (rows <= room_) return Status::ok();
  // Recordings use it where steps are padded, so there it is never replaced.
  const uint32_t room =
      model_.backend().traits().pads_steps ? max_rows_ : std::min(max_rows_, std::bit_ceil(rows));
  forward_.reset();
  room_ = 0;
  BLEND_ASSIGN(forward_, Forward::create_for_steps(model_, room));
  room_ = room;
  return Status::ok();
}

bool SharedSteps::runs_recorded() const {
  return rows_.size() == 1 && model_.backend().record_ops() != nullptr &&
         parts_[0].request->sequence->may_record();
}

Status SharedSteps::compute_recorded() {
  BLEND_RETURN_IF_ERROR(make_room(1));
  const Request& r = *parts_[0].request;
  rows_[0].failure = r.sequence->step(*forward_, r.token, Watch{r.cancel, {}}, r.logits);
  return Status::ok();
}

Status SharedSteps::compute_layer() {
  const auto rows = static_cast<uint32_t>(rows_.size());
  BLEND_RETURN_IF_ERROR(make_room(rows));
  const Tensor x = forward_->x(rows);
  if (layer_ == 0) BLEND_RETURN_IF_ERROR(forward_->embed(tokens_.data(), x));
  return forward_->step_layer(layer_, rows_, x, forward_->kv(layer_, rows));
}

Status SharedSteps::compute_logits() {
  const auto rows = static_cast<uint32_t>(rows_.size());
  BLEND_RETURN_IF_ERROR(forward_->project_logits(forward_->x(rows)));
  std::vector<float*> out(rows, nullptr);
  std::vector<Status> failures(rows, Status::ok());
  for (const Part& part : parts_) {
    if (part.request == nullptr) continue;
    out[part.first] = part.request->logits;
    for (uint32_t k = 0; k < part.n_ahead; ++k) {
      out[part.first + 1 + k] = part.request->ahead_logits[k];
    }
  }
  BLEND_RETURN_IF_ERROR(forward_->read_logits(out, failures));
  for (Part& part : parts_) {
    if (part.request == nullptr) continue;
    rows_[part.first].failure = std::move(failures[part.first]);
    for (uint32_t k = 0; k < part.n_ahead; ++k) {
      if (!failures[part.first + 1 + k].is_ok()) part.n_ahead = k;
    }
  }
  return Status::ok();
}

}  // namespace blend
