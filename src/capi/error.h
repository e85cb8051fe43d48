// The catch barrier: every entry point's body runs inside guarded(), which turns a Status into a
// code and an owned error, and stops every C++ exception.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "base/status.h"
#include "base/threads/thread_cap.h"
#include "blend/admin.h"
#include "blend/blend.h"
#include "blend/experimental.h"
#include "blend/fidelity.h"
#include "blend/remote.h"
#include "blend/report.h"
#include "blend/step.h"

struct blend_error {
  int32_t code = BLEND_OK;
  int64_t detail = 0;
  std::string message;
};

namespace blend::capi {

// Never fails: without memory it hands out a static error that blend_error_free leaves alone.
blend_error* make_blend_error(const Status& status) noexcept;

// Sets *err (if wanted) and returns the code.
int32_t fail(const Status& status, blend_error** err) noexcept;

// `body` returns Result<int32_t> or Status; a Status that is OK gives BLEND_OK. A call from a
// callback has threads of its own: the cap of the call around it is not its.
template <typename Body>
int32_t guarded(blend_error** err, Body&& body) noexcept {
  if (err != nullptr) *err = nullptr;
  const ThreadCap uncapped(0);
  try {
    auto result = body();
    if constexpr (std::is_same_v<decltype(result), Status>) {
      return result.is_ok() ? result.code() : fail(result, err);
    } else {
      return result.is_ok() ? *result : fail(result.status(), err);
    }
  } catch (const std::bad_alloc&) {
    return fail(Status::out_of_memory(), err);
  } catch (const std::length_error&) {
    return fail({BLEND_E_INVALID_ARGUMENT, "a count is larger than memory could ever hold"}, err);
  } catch (const std::exception& e) {
    return fail(make_error(BLEND_E_INTERNAL, "%s", e.what()), err);
  } catch (...) {
    return fail(make_error(BLEND_E_INTERNAL, "an unknown exception reached the C ABI"), err);
  }
}

inline Status null_argument(const char* name) {
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s must not be NULL", name);
}

// A binding's negative number arrives as a huge one: refused, not taken for "very many".
inline Status check_count(const char* name, uint32_t count) {
  if (count <= INT32_MAX) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s %u is more than %d: %lld, perhaps, was not meant",
                    name, count, INT32_MAX, static_cast<long long>(static_cast<int32_t>(count)));
}

}  // namespace blend::capi

// In a body: a null pointer names itself.
#define BLEND_REQUIRE(pointer) \
  if ((pointer) == nullptr) return ::blend::capi::null_argument(#pointer)
