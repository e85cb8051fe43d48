// TLS by OpenSSL.
#pragma once

#include <memory>

#include "store/remote/client/tls.h"

namespace blend {

// As make_tls_context(), in the library that links libssl.
Result<std::unique_ptr<TlsContext>> make_openssl_context(const TlsModuleRequest& request);

}  // namespace blend
