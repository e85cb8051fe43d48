#include "capi/error.h"

#include "base/utf8_stream.h"

namespace blend::capi {
namespace {

// Preallocated, so that running out of memory can still be said (libgit2's habit).
const blend_error& static_out_of_memory() {
  // Built in place and never destroyed: a host may free errors while the process ends. The text
  // fits std::string's own storage.
  alignas(blend_error) static unsigned char storage[sizeof(blend_error)];
  static const auto* error = new (storage) blend_error{BLEND_E_OUT_OF_MEMORY, 0, "out of memory"};
  return *error;
}

}  // namespace

blend_error* make_blend_error(const Status& status) noexcept {
  try {
    return new blend_error{status.code(), status.detail(), valid_utf8(status.message())};
  } catch (...) {
    // Never written through: the public type is opaque and free() knows it.
    return const_cast<blend_error*>(&static_out_of_memory());
  }
}

int32_t fail(const Status& status, blend_error** err) noexcept {
  if (err == nullptr) return status.code();
  *err = make_blend_error(status);
  return (*err)->code;
}

}  // namespace blend::capi

extern "C" {

const char* blend_version(void) { return BLEND_VERSION_STRING; }

int32_t blend_error_code(const blend_error* error) { return error ? error->code : BLEND_OK; }

const char* blend_error_message(const blend_error* error) {
  return error ? error->message.c_str() : "";
}

int64_t blend_error_detail(const blend_error* error) { return error ? error->detail : 0; }

void blend_error_free(blend_error* error) {
  if (error != &blend::capi::static_out_of_memory()) delete error;
}

const char* blend_code_name(int32_t code) {
#define BLEND_CASE(name) \
  case name:             \
    return #name
  switch (code) {
    BLEND_CASE(BLEND_OK);
    BLEND_CASE(BLEND_EXISTS);
    BLEND_CASE(BLEND_STOPPED);
    BLEND_CASE(BLEND_BELOW_LIMITS);
    BLEND_CASE(BLEND_PARTIAL);
    BLEND_CASE(BLEND_E_INVALID_ARGUMENT);
    BLEND_CASE(BLEND_E_INVALID_STRUCT);
    BLEND_CASE(BLEND_E_BUFFER_TOO_SMALL);
    BLEND_CASE(BLEND_E_CONTEXT_LENGTH);
    BLEND_CASE(BLEND_E_NOT_FOUND);
    BLEND_CASE(BLEND_E_FORMAT);
    BLEND_CASE(BLEND_E_UNSUPPORTED);
    BLEND_CASE(BLEND_E_MISMATCH);
    BLEND_CASE(BLEND_E_CORRUPT);
    BLEND_CASE(BLEND_E_IO);
    BLEND_CASE(BLEND_E_FULL);
    BLEND_CASE(BLEND_E_READ_ONLY);
    BLEND_CASE(BLEND_E_NO_DEVICE);
    BLEND_CASE(BLEND_E_BUSY);
    BLEND_CASE(BLEND_E_OUT_OF_MEMORY);
    BLEND_CASE(BLEND_E_CANCELLED);
    BLEND_CASE(BLEND_E_CALLBACK);
    BLEND_CASE(BLEND_E_FORKED);
    BLEND_CASE(BLEND_E_NUMERIC);
    BLEND_CASE(BLEND_E_UNTRUSTED);
    BLEND_CASE(BLEND_E_INTERNAL);
    BLEND_CASE(BLEND_EVENT_EVICTED);
    BLEND_CASE(BLEND_EVENT_REMOTE_DOWN);
    BLEND_CASE(BLEND_EVENT_REMOTE_UP);
    BLEND_CASE(BLEND_EVENT_MODEL_OPENED);
    BLEND_CASE(BLEND_EVENT_STORE_OPENED);
    BLEND_CASE(BLEND_EVENT_STORE_REBUILT);
    BLEND_CASE(BLEND_EVENT_FUSED);
    BLEND_CASE(BLEND_EVENT_UNTRUSTED);
    default:
      return "BLEND_E_?";
  }
#undef BLEND_CASE
}

}  // extern "C"
