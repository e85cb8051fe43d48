#include "fusion/idle/idle_worker.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/threads/start_thread.h"

namespace blend {
namespace {

// A pause that is longer than a host's between two tokens of an answer. If calls never cease, one
// layer a second still finishes a chunk in time.
constexpr auto kQuiet = std::chrono::milliseconds(50);
constexpr auto kMostWait = std::chrono::milliseconds(1000);

}  // namespace

IdleWorker::IdleWorker(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

IdleWorker::~IdleWorker() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void IdleWorker::enter(Client& client) {
  const MutexLock lock(mutex_);
  clients_.push_back(&client);
}

void IdleWorker::leave(Client& client) {
  const Foreground::Hurry hurry(foreground());
  MutexLock lock(mutex_);
  std::erase(clients_, &client);
  notified_ = true;  // clients have moved, so the count of idle ones begins again
  changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return working_ != &client; });
}

bool IdleWorker::start() {
  const MutexLock lock(mutex_);
  if (thread_.joinable()) return true;
  try {
    thread_ = start_thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void IdleWorker::notify() {
  {
    const MutexLock lock(mutex_);
    notified_ = true;
  }
  changed_.notify_all();
}

void IdleWorker::urge(int by) {
  const MutexLock lock(mutex_);
  urgent_ += by;
}

bool IdleWorker::is_urgent() const {
  const MutexLock lock(mutex_);
  return urgent_ > 0;
}

Watch IdleWorker::polite(const CancelToken& cancel, bool makes_way) {
  return {&cancel, [this, makes_way](uint64_t, uint64_t) {
            foreground().stand_back(kQuiet, kMostWait);
            return makes_way && is_urgent() ? 1 : 0;
          }};
}

void IdleWorker::run() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&]() BLEND_REQUIRES(mutex_) { return stop_ || notified_; });
    notified_ = false;
    size_t next = 0;
    for (size_t n_idle = 0; n_idle < clients_.size() && !stop_;) {
      Client* const client = working_ = clients_[next % clients_.size()];
      lock.unlock();
      const bool worked = client->work();
      lock.lock();
      working_ = nullptr;
      changed_.notify_all();  // leave()
      // Clients may have entered, left or got work meanwhile.
      n_idle = worked || std::exchange(notified_, false) ? 0 : n_idle + 1;
      next = worked && urgent_ > 0 ? 0 : next + 1;
    }
    if (stop_) return;
  }
}

}  // namespace blend
