// The outcome of a call: the only way in which the shim reports failure. Nothing in the shim
// throws.
#ifndef BLEND_SHIM_OUTCOME_H
#define BLEND_SHIM_OUTCOME_H

#include <stdint.h>

#include <string>

// Codes of the shim's own, in addition to those of blend.h; see bindings/common/errors.txt.
#define BLEND_SHIM_E_CLOSED (-1001)     // the object was closed before
#define BLEND_SHIM_E_IN_USE (-1002)     // another call or an open stream has the object to itself
#define BLEND_SHIM_E_VIEW_HELD (-1003)  // the call would change memory that a view shows

namespace blend_shim {

// The outcome of the call that it was given to last. A call writes it whole, success included, so
// one may serve many calls in turn. Belongs to one thread at a time; there is no thread-local and
// no global.
class Outcome {
 public:
  int32_t code() const noexcept { return code_; }      // BLEND_OK, positive, or negative
  int64_t detail() const noexcept { return detail_; }  // the errno, a callback's value, or 0
  const std::string& message() const noexcept { return message_; }  // "" unless it failed
  std::string name() const;  // "BLEND_E_NOT_FOUND"; "BLEND_SHIM_E_CLOSED" for the shim's own

#ifndef SWIG
  void set(int32_t code, int64_t detail = 0, std::string message = {}) noexcept {
    code_ = code;
    detail_ = detail;
    message_.swap(message);
  }
#endif

 private:
  int32_t code_ = 0;
  int64_t detail_ = 0;
  std::string message_;
};

// "major.minor.patch" of the library that is loaded.
std::string version();

}  // namespace blend_shim

#endif
