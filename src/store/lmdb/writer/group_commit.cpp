#include "store/lmdb/writer/group_commit.h"

#include <new>

namespace blend {

void GroupCommit::run(std::span<Put* const> puts, const std::function<Status()>& transaction) {
  MutexLock lock(mutex_);
  for (Put* put : puts) {
    put->next = nullptr;
    put->alone = put->done = false;
    (last_ == nullptr ? first_ : last_->next) = put;
    last_ = put;
  }
  const auto done = [&] {
    return std::all_of(puts.begin(), puts.end(), [](const Put* put) { return put->done; });
  };
  for (;;) {
    changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return done() || !busy_; });
    if (done()) return;
    busy_ = true;
    Status status;
    {
      const MutexUnlock unlock(mutex_);
      try {
        status = transaction();
      } catch (const std::bad_alloc&) {
        status = Status::out_of_memory();
      }
    }
    busy_ = false;
    // A transaction that could not begin has taken no puts: its error is that of this thread's
    // puts.
    if (n_taken_ == 0 && !status.is_ok()) take_these(puts);
    settle(status);
    changed_.notify_all();
  }
}

void GroupCommit::take_these(std::span<Put* const> puts) {
  Put** link = &first_;
  last_ = nullptr;
  while (Put* put = *link) {
    if (std::find(puts.begin(), puts.end(), put) != puts.end()) {
      *link = put->next;
      taken_[n_taken_++] = put;
    } else {
      last_ = put;
      link = &put->next;
    }
  }
}

GroupCommit::Put* GroupCommit::take() {
  const MutexLock lock(mutex_);
  Put* put = first_;
  if (put == nullptr) return nullptr;
  const uint64_t size = put->chunk->manifest.footprint();
  if (n_taken_ > 0) {
    const Sha256& id = put->chunk->manifest.meta.id;
    const bool known =
        std::any_of(taken_.begin(), taken_.begin() + n_taken_,
                    [&](const Put* other) { return other->chunk->manifest.meta.id == id; });
    if (known || put->alone || taken_[0]->alone || n_taken_ == kMostPuts ||
        bytes_ + size > most_bytes_) {
      return nullptr;
    }
  }
  first_ = put->next;
  if (first_ == nullptr) last_ = nullptr;
  taken_[n_taken_++] = put;
  bytes_ += size;
  return put;
}

void GroupCommit::give_back() {
  const MutexLock lock(mutex_);
  Put* put = taken_[--n_taken_];
  bytes_ -= put->chunk->manifest.footprint();
  put_back(put);
}

void GroupCommit::finish() {
  const MutexLock lock(mutex_);
  settle(Status::ok());
}

void GroupCommit::fail(const Status& status) {
  const MutexLock lock(mutex_);
  if (n_taken_ == 1) return settle(status);
  while (n_taken_ > 0) {
    Put* put = taken_[--n_taken_];
    put->alone = true;
    put_back(put);
  }
  bytes_ = 0;
}

void GroupCommit::settle(const Status& status) {
  while (n_taken_ > 0) {
    Put* put = taken_[--n_taken_];
    put->done = true;
    try {
      put->status_ = status;
    } catch (const std::bad_alloc&) {
      put->status_ = Status::out_of_memory();
    }
  }
  bytes_ = 0;
}

}  // namespace blend
