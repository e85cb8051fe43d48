#include <condition_variable>
#include <deque>

#include "detail.h"

namespace blend_shim {

std::string version() { return blend_version(); }

std::string Outcome::name() const {
  switch (code_) {
    case BLEND_SHIM_E_CLOSED:
      return "BLEND_SHIM_E_CLOSED";
    case BLEND_SHIM_E_IN_USE:
      return "BLEND_SHIM_E_IN_USE";
    case BLEND_SHIM_E_VIEW_HELD:
      return "BLEND_SHIM_E_VIEW_HELD";
    default:
      return blend_code_name(code_);
  }
}

Cancel::Cancel() noexcept {
  try {
    token_ = std::make_shared<blendpp::CancelToken>();
  } catch (...) {  // NOLINT(bugprone-empty-catch): see the header
  }
}
void Cancel::request() noexcept {
  if (token_) token_->request();
}
void Cancel::reset() noexcept {
  if (token_) token_->reset();
}

Measurement measurement_line(const blend_measurement& c) {
  Measurement s = shown<Measurement>(c);
  s.prefix_ = c.chunk_prefix;
  s.n_prefix_ = c.n_chunk_prefix;
  return s;
}

// ---- Events

struct Events::Queue {
  static constexpr size_t kMost = 1024;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  uint64_t n_dropped = 0;
  bool stopped = false;
};

namespace {

// The library's end of a queue: when the last context's handle is gone nobody can send any more.
struct Sender {
  std::shared_ptr<Events::Queue> queue;
  ~Sender() {
    const std::lock_guard<std::mutex> lock(queue->mutex);
    queue->stopped = true;
    queue->changed.notify_all();
  }
  void send(int32_t code, const char* message) const {
    const std::lock_guard<std::mutex> lock(queue->mutex);
    if (queue->events.size() == Events::Queue::kMost) {
      queue->events.pop_front();
      ++queue->n_dropped;
    }
    queue->events.push_back({code, message});
    queue->changed.notify_one();
  }
};

}  // namespace

Events::Events() noexcept {
  try {
    queue_ = std::make_shared<Queue>();
  } catch (...) {  // NOLINT(bugprone-empty-catch): next() says that it is stopped
  }
}

int32_t Events::next(int64_t timeout_ms, Event& event) noexcept {
  if (!queue_) return -1;
  std::unique_lock<std::mutex> lock(queue_->mutex);
  const auto ready = [this] { return queue_->stopped || !queue_->events.empty(); };
  if (timeout_ms < 0) {
    queue_->changed.wait(lock, ready);
  } else if (!queue_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready)) {
    return 0;
  }
  if (queue_->events.empty()) return -1;
  event.code = queue_->events.front().code;
  event.message.swap(queue_->events.front().message);
  queue_->events.pop_front();
  return 1;
}

void Events::stop() noexcept {
  if (!queue_) return;
  const std::lock_guard<std::mutex> lock(queue_->mutex);
  queue_->stopped = true;
  queue_->changed.notify_all();
}

uint64_t Events::n_dropped() const noexcept {
  if (!queue_) return 0;
  const std::lock_guard<std::mutex> lock(queue_->mutex);
  return queue_->n_dropped;
}

// ---- Context

Context::Context(std::shared_ptr<Slot<blendpp::Context>> slot) noexcept : slot_(std::move(slot)) {}
Context::~Context() = default;

ContextOptions::ContextOptions() noexcept { show(*this, blendpp::ContextOptions()); }

Context* Context::create(const ContextOptions& options, Outcome& out) noexcept {
  return guarded(out, [&] {
    blendpp::ContextOptions c;
    give(c, options);
    if (options.events_) {
      auto sender = std::make_shared<Sender>();
      sender->queue = options.events_;
      c.events = [sender](int32_t code, const char* message) { sender->send(code, message); };
    }
    return new Context(make_slot("context", std::make_shared<blendpp::Context>(c)));
  });
}
std::string Context::backend(Outcome& out) const noexcept {
  return guarded(out, [&] { return std::string(slot_->get()->backend()); });
}
void Context::close() noexcept { slot_->take(); }

}  // namespace blend_shim
