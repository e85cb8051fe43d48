#include "store/remote/client/tls.h"

#include <dlfcn.h>

#include "base/files/module_file.h"

namespace blend {

Result<std::shared_ptr<const TlsContext>> make_tls_context(const RemoteOptions& options) {
  auto module = open_module_file(kTlsModule, "BLEND_TLS_MODULE");
  if (!module.is_ok()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "TLS cannot be loaded (%s): install %s beside libblend.so, and OpenSSL 3",
                      module.status().message().c_str(), kTlsModule);
  }
  const auto create = reinterpret_cast<TlsModuleCreate>(dlsym(*module, kTlsModuleEntry));  // NOLINT
  if (create == nullptr) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "%s has no entry %s: it is of another version; install the one that came "
                      "with this libblend (%s)",
                      kTlsModule, kTlsModuleEntry, BLEND_VERSION_STRING);
  }
  TlsModuleRequest request;
  request.version = BLEND_VERSION_STRING;
  request.ca_file = options.ca_file.c_str();
  request.certificate_file = options.certificate_file.c_str();
  request.key_file = options.key_file.c_str();
  TlsContext* context = nullptr;
  char message[1024] = "";
  const int32_t code = create(&request, &context, message, sizeof message);
  if (code < 0) return Status{code, message};
  return std::shared_ptr<const TlsContext>(context);
}

}  // namespace blend
