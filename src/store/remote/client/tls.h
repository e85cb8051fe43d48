// TLS, from a library of its own: libblend_tls.so is opened when a URL asks for it (rediss://), so
// that hosts which have no remote tier, or one without TLS, load no libssl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "store/remote/client/stream.h"
#include "store/remote/options.h"

namespace blend {

// Thread-safe.
class TlsContext {
 public:
  virtual ~TlsContext() = default;
  // Shakes hands; checks the server's certificate against `host`, a name or an address.
  virtual Result<std::unique_ptr<Stream>> connect(Socket socket, const std::string& host,
                                                  SteadyTime deadline) const = 0;
};

// INVALID_ARGUMENT: a file is missing or no certificate; UNSUPPORTED: the library is not there.
Result<std::shared_ptr<const TlsContext>> make_tls_context(const RemoteOptions& options);

// ---- The library's one entry

// Counts up whenever a type above changes.
inline constexpr uint32_t kTlsInterface = 2;
inline constexpr char kTlsModule[] = "libblend_tls.so";
inline constexpr char kTlsModuleEntry[] = "blend_tls_context_create";

struct TlsModuleRequest {
  uint32_t interface = kTlsInterface;  // the first member for good
  const char* version = nullptr;       // "major.minor.patch" of the caller
  const char* ca_file = nullptr;       // "": the system's
  const char* certificate_file = nullptr;
  const char* key_file = nullptr;
};

// Returns BLEND_OK and a context that the caller deletes, or a BLEND_E_* and a sentence (cut to
// message_bytes, NUL included). No exception leaves it.
using TlsModuleCreate = int32_t (*)(const TlsModuleRequest* request, TlsContext** out,
                                    char* message, size_t message_bytes);

}  // namespace blend
