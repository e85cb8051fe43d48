// libblend_tls.so's entry (store/remote/client/tls.h).
#include <cstdio>
#include <cstring>
#include <new>

#include "store/remote/client/tls/openssl.h"

extern "C" __attribute__((visibility("default"))) int32_t blend_tls_context_create(
    const blend::TlsModuleRequest* request, blend::TlsContext** out, char* message,
    size_t message_bytes) {
  const auto fail = [&](const blend::Status& status) {
    (void)std::snprintf(message, message_bytes, "%s", status.message().c_str());
    return status.code();
  };
  try {
    *out = nullptr;
    if (request->interface != blend::kTlsInterface ||
        std::strcmp(request->version, BLEND_VERSION_STRING) != 0) {
      return fail(blend::make_error(
          BLEND_E_UNSUPPORTED,
          "%s is of version %s, libblend of another: install the one that came with it",
          blend::kTlsModule, BLEND_VERSION_STRING));
    }
    auto context = blend::make_openssl_context(*request);
    if (!context.is_ok()) return fail(context.status());
    *out = context.value().release();
    return BLEND_OK;
  } catch (const std::bad_alloc&) {
    return fail(blend::Status::out_of_memory());
  }
}
