// Arguments of a call besides its own: a token that cancels it, and a listener; and the log.
#ifndef BLEND_SHIM_CALL_H
#define BLEND_SHIM_CALL_H

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <string>
#include <vector>

#include "blend_fields.h"
#include "outcome.h"

namespace blendpp {
class CancelToken;
}

namespace blend_shim {

// A token that cancels every call whose options hold it: the call gives BLEND_E_CANCELLED. Every
// function may be called on any thread at any time. Options keep the token alive.
class Cancel {
 public:
  Cancel() noexcept;
  void request() noexcept;
  void reset() noexcept;
#ifndef SWIG
  const std::shared_ptr<blendpp::CancelToken>& token() const noexcept { return token_; }
#endif

 private:
#ifndef SWIG
  std::shared_ptr<blendpp::CancelToken> token_;  // null: no memory; then it has no effect
#endif
};

// A line of a calibration's table.
struct Measurement {
  BLEND_MEASUREMENT_FIELDS(BLEND_SHIM_DECLARE)
  // The chunk prefix that was measured.
  size_t n_chunk_prefix() const noexcept { return n_prefix_; }
  int32_t chunk_prefix(size_t i) const noexcept { return i < n_prefix_ ? prefix_[i] : 0; }
#ifndef SWIG
  std::shared_ptr<const void> owner_;
  const int32_t* prefix_ = nullptr;
  size_t n_prefix_ = 0;
#endif
};

// The rows that a policy is to score at a check layer; valid during the call. See blend_score_fn.
class Scoring {
 public:
  uint32_t layer() const noexcept { return layer_; }
  size_t size() const noexcept { return size_; }
  const void* rows() const noexcept { return rows_; }            // uint32 [size], ascending
  const void* deviation() const noexcept { return deviation_; }  // float [size]
  void* scores() const noexcept {
    return scores_;
  }  // float [size], to be written; the larger, the
     // sooner the row goes on
#ifndef SWIG
  Scoring(uint32_t layer, size_t size, const uint32_t* rows, const float* deviation,
          float* scores) noexcept
      : layer_(layer), size_(size), rows_(rows), deviation_(deviation), scores_(scores) {}

 private:
  uint32_t layer_;
  size_t size_;
  const uint32_t* rows_;
  const float* deviation_;
  float* scores_;
#else
 private:
  Scoring();
#endif
};

// The one class that a language derives from (a SWIG director). Its functions are called on the
// thread that made the call, during it, and return false to stop it: the call then gives
// BLEND_E_CALLBACK. An exception of the language must not leave them: the facade's subclass catches
// it, keeps it, returns false, and raises it once the call has returned. Tokens, records of
// the log and chunks are pulled instead of called back: TokenStream, LogQueue, Chunks.
class Listener {
 public:
  virtual ~Listener() {}
  // `done` of `total` layers, bytes, chunks or prefills, as the call says.
  virtual bool progress(uint64_t done, uint64_t total) {
    (void)done;
    (void)total;
    return true;
  }
  // Scores rows for BLEND_POLICY_CALLBACK.
  virtual bool score(const Scoring& candidates) {
    (void)candidates;
    return true;
  }
  // `line` is valid during the call.
  virtual bool measurement(const Measurement& line) {
    (void)line;
    return true;
  }
};

// Base of classes that collect arguments. Adding does not throw: if memory runs out, the collection
// is marked incomplete, and the call that takes it gives BLEND_E_OUT_OF_MEMORY. Not thread-safe.
class Builder {
#ifndef SWIG
 public:
  bool complete() const noexcept { return complete_; }

 protected:
  template <typename Add>
  void keep(Add add) noexcept {
    try {
      add();
    } catch (...) {
      complete_ = false;
    }
  }

 private:
  bool complete_ = true;
#endif
};

#ifndef SWIG
// A message of a conversation.
struct Turn {
  std::string role;
  std::string content;
  std::string members;
};
#endif

// Base of the options of long calls. Not thread-safe: set all options before a call takes them.
class Call : public Builder {
 public:
  // The listener must outlive the calls, or the layerwise fuse, that these options are given to.
  // Default: none.
  void set_listener(Listener* listener) noexcept { listener_ = listener; }
  void set_cancel(const Cancel& cancel) noexcept { cancel_ = cancel.token(); }
#ifndef SWIG
  Listener* listener_ = nullptr;
  std::shared_ptr<blendpp::CancelToken> cancel_;
#endif
};

// A record of the log; see blend_log_record.
class LogRecord {
 public:
  uint32_t level() const noexcept { return level_; }
  int32_t code() const noexcept { return code_; }
  std::string name() const;  // of the code: "BLEND_EVENT_EVICTED"
  int64_t time_unix_ns() const noexcept { return time_unix_ns_; }
  const std::string& component() const noexcept { return component_; }
  const std::string& message() const noexcept { return message_; }
  size_t n_fields() const noexcept { return fields_.size(); }
  // Of field i < n_fields(): BLEND_FIELD_*, the key, and the value of that type.
  uint32_t field_type(size_t i) const noexcept { return fields_[i].type; }
  const std::string& field_key(size_t i) const noexcept { return fields_[i].key; }
  const std::string& field_text(size_t i) const noexcept { return fields_[i].text; }
  int64_t field_integer(size_t i) const noexcept { return fields_[i].integer; }
  double field_number(size_t i) const noexcept { return fields_[i].number; }
#ifndef SWIG
  struct Field {
    uint32_t type = 0;
    std::string key;
    std::string text;
    int64_t integer = 0;
    double number = 0;
  };
  uint32_t level_ = 0;
  int32_t code_ = 0;
  int64_t time_unix_ns_ = 0;
  std::string component_;
  std::string message_;
  std::vector<Field> fields_;
#endif
};

// A bounded queue of the records of contexts. A thread of the facade pulls from it, so no thread of
// the library ever enters the language. It holds 1024 records; then the oldest are dropped and
// counted. Every function may be called on any thread.
class LogQueue {
 public:
  LogQueue() noexcept;
  // 1: `record` is written. 0: nothing came within timeout_ms (negative: waits for ever).
  // -1: stop() was called, or no context is left that could send one, and the queue is empty.
  int32_t next(int64_t timeout_ms, LogRecord& record) noexcept;
  void stop() noexcept;
  uint64_t n_dropped() const noexcept;
#ifndef SWIG
  struct Queue;
  const std::shared_ptr<Queue>& queue() const noexcept { return queue_; }
#endif

 private:
#ifndef SWIG
  std::shared_ptr<Queue> queue_;
#endif
};

}  // namespace blend_shim

#endif
