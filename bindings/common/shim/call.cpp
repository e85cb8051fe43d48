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

// ---- The log

struct LogQueue::Queue {
  static constexpr size_t kMost = 1024;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<LogRecord> records;
  uint64_t n_dropped = 0;
  bool stopped = false;
};

namespace {

// The library's end of a queue: when the last context's handle is gone nobody can send any more.
struct Sender {
  std::shared_ptr<LogQueue::Queue> queue;
  ~Sender() {
    const std::lock_guard<std::mutex> lock(queue->mutex);
    queue->stopped = true;
    queue->changed.notify_all();
  }
  void send(LogRecord record) const {
    const std::lock_guard<std::mutex> lock(queue->mutex);
    if (queue->records.size() == LogQueue::Queue::kMost) {
      queue->records.pop_front();
      ++queue->n_dropped;
    }
    queue->records.push_back(std::move(record));
    queue->changed.notify_one();
  }
};

LogRecord copy_of(const blend_log_record& c) {
  LogRecord record;
  record.level_ = c.level;
  record.code_ = c.code;
  record.time_unix_ns_ = static_cast<int64_t>(c.time_unix_ns);
  record.component_ = c.component;
  record.message_ = c.message;
  for (uint32_t i = 0; i < c.n_fields; ++i) {
    const blend_log_field& f = c.fields[i];
    record.fields_.push_back({f.type, f.key, f.text, f.integer, f.number});
  }
  return record;
}

}  // namespace

std::string LogRecord::name() const { return blend_code_name(code_); }

LogQueue::LogQueue() noexcept {
  try {
    queue_ = std::make_shared<Queue>();
  } catch (...) {  // NOLINT(bugprone-empty-catch): next() says that it is stopped
  }
}

int32_t LogQueue::next(int64_t timeout_ms, LogRecord& record) noexcept {
  if (!queue_) return -1;
  std::unique_lock<std::mutex> lock(queue_->mutex);
  const auto ready = [this] { return queue_->stopped || !queue_->records.empty(); };
  if (timeout_ms < 0) {
    queue_->changed.wait(lock, ready);
  } else if (!queue_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready)) {
    return 0;
  }
  if (queue_->records.empty()) return -1;
  std::swap(record, queue_->records.front());
  queue_->records.pop_front();
  return 1;
}

void LogQueue::stop() noexcept {
  if (!queue_) return;
  const std::lock_guard<std::mutex> lock(queue_->mutex);
  queue_->stopped = true;
  queue_->changed.notify_all();
}

uint64_t LogQueue::n_dropped() const noexcept {
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
    if (options.log_) {
      auto sender = std::make_shared<Sender>();
      sender->queue = options.log_;
      c.on_log = [sender](const blend_log_record& record) { sender->send(copy_of(record)); };
    }
    return new Context(make_slot("context", std::make_shared<blendpp::Context>(c)));
  });
}
std::string Context::backend(Outcome& out) const noexcept {
  return guarded(out, [&] { return std::string(slot_->get()->backend()); });
}
void Context::close() noexcept { slot_->take(); }

}  // namespace blend_shim
