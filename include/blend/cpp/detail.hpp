// What all wrappers share: errors and callbacks of a call, handles, structs at their defaults. Not
// for users.
#ifndef BLEND_CPP_DETAIL_HPP
#define BLEND_CPP_DETAIL_HPP

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "blend/cpp/error.hpp"
#include "blend/log.h"

namespace blendpp {

// Return true to go on, false to stop the call.
using ProgressFn = std::function<bool(uint64_t done, uint64_t total)>;
// From any thread, several at once; what it throws is dropped, there is nobody to give it to. The
// record is valid during the call.
using LogFn = std::function<void(const blend_log_record& record)>;

namespace detail {

// The error output of one call.
class Outcome {
 public:
  Outcome() = default;
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;
  ~Outcome() { blend_error_free(error_); }

  blend_error** out() noexcept { return &error_; }
  // What a callback of the call has thrown.
  std::exception_ptr thrown;

  // Rethrows the callback's exception, throws on an error code, or gives the code back.
  int32_t check(int32_t code) const {
    if (thrown) std::rethrow_exception(thrown);
    if (code >= 0) return code;
    if (error_ == nullptr) throw Error(code, 0, blend_code_name(code));
    throw Error(code, blend_error_detail(error_), blend_error_message(error_));
  }

 private:
  blend_error* error_ = nullptr;
};

inline void check(int32_t code) {
  if (code < 0) throw Error(code, 0, blend_code_name(code));
}

// A callback and where its exception goes: what `user` points at during a call.
template <typename Fn>
struct Guarded {
  const Fn& fn;
  Outcome& outcome;

  template <typename... Args>
  int32_t call(Args&&... args) noexcept {
    try {
      return fn(std::forward<Args>(args)...) ? 0 : 1;
    } catch (...) {
      outcome.thrown = std::current_exception();
      return 1;
    }
  }
};

inline int32_t on_progress(void* user, uint64_t done, uint64_t total) noexcept {
  return static_cast<Guarded<ProgressFn>*>(user)->call(done, total);
}

// Options with the callback of one call put in.
template <typename Options>
Options with_progress(const Options& options, const ProgressFn& fn, Guarded<ProgressFn>& guarded) {
  Options copy = options;
  if (fn) {
    copy.progress = &on_progress;
    copy.progress_user = &guarded;
  }
  return copy;
}

// Texts as C has them.
inline const char* c_string(const std::string& text, const std::string& what) {
  if (text.find('\0') == std::string::npos) return text.c_str();
  throw Error(BLEND_E_INVALID_ARGUMENT, 0, what + " has a NUL in it, which no text has");
}

// Null: not set.
inline const char* c_string(const std::optional<std::string>& text) noexcept {
  return text.has_value() ? text->c_str() : nullptr;
}

inline std::vector<const char*> c_strings(const std::vector<std::string>& documents) {
  std::vector<const char*> out;
  for (const std::string& document : documents) {
    out.push_back(c_string(document, "document " + std::to_string(out.size())));
  }
  return out;
}

// Closes a handle and keeps the log callback until then: background writes of a store, or a
// context kept alive by its models, may still tell it of something while the handle closes.
template <typename T, void (*Close)(T*)>
struct Closer {
  std::shared_ptr<const LogFn> log;
  void operator()(T* handle) const noexcept { Close(handle); }
};

template <typename T, void (*Close)(T*)>
using Handle = std::unique_ptr<T, Closer<T, Close>>;

// A C struct that says something: it begins with its size and zeros.
template <typename C>
struct Sized : C {
  Sized() : C{} { this->struct_size = sizeof(C); }
};

// Options, at their defaults.
template <typename C, int32_t (*Init)(C*, size_t)>
struct Initialised : C {
  Initialised() : C{} { check(Init(this, sizeof(C))); }
};

// Memory that `handle` owns, as one of its getters tells it.
template <typename T, typename Handle>
Span<const T> span_of(int32_t (*get)(const Handle*, const T**, size_t*, blend_error**),
                      const Handle* handle) {
  Outcome outcome;
  const T* data = nullptr;
  size_t n = 0;
  outcome.check(get(handle, &data, &n, outcome.out()));
  return {data, n};
}

// A struct that a getter fills: `get(arguments..., &struct, err)`.
template <typename Struct, typename Get, typename... Arguments>
Struct filled(Get get, Arguments... arguments) {
  Outcome outcome;
  Struct made;
  outcome.check(get(arguments..., &made, outcome.out()));
  return made;
}

}  // namespace detail

}  // namespace blendpp

#endif
