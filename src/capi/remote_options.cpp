#include "capi/remote_options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/hash.h"
#include "base/secret.h"

namespace blend::capi {
namespace {

constexpr size_t kMostSecret = 1024;
constexpr uint32_t kMostConnections = 64;
constexpr uint32_t kMostMs = 600'000;

std::string text_of(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

// A program that runs with another's rights does not read its caller's environment. "": there is
// none.
const char* of_environment(const char* name) {
  const char* const text = secure_getenv(name);
  return text == nullptr ? "" : text;
}

Result<Secret> ask(const blend_store_options& o, uint32_t secret, const char* name) {
  std::array<char, kMostSecret> out{};
  const Wiped wiped(out.data(), out.size());
  size_t n = 0;
  const int32_t rc = o.remote_secret(o.remote_secret_user, secret, out.data(), out.size(), &n);
  if (rc != 0) return Status{BLEND_E_CALLBACK, "remote_secret asked to stop", rc};
  if (n > out.size()) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "remote_secret: the %s has %zu bytes, of at most %zu", name, n, out.size());
  }
  return Secret(std::string_view(out.data(), n));
}

Status read_secrets(const blend_store_options& o, RemoteOptions& out) {
  if (o.remote_secret != nullptr) {
    BLEND_ASSIGN(const Secret user, ask(o, BLEND_SECRET_USER, "user"));
    out.user = user.view();
    BLEND_ASSIGN(out.password, ask(o, BLEND_SECRET_PASSWORD, "password"));
    BLEND_ASSIGN(out.seal_key, ask(o, BLEND_SECRET_SEAL_KEY, "seal key"));
  } else {
    out.user = of_environment("BLEND_REMOTE_USER");
    out.password = of_environment("BLEND_REMOTE_PASSWORD");
    if (const std::string_view hex = of_environment("BLEND_REMOTE_SEAL_KEY"); !hex.empty()) {
      auto key = sha256_from_hex(hex);
      if (!key.is_ok()) {
        return {BLEND_E_INVALID_ARGUMENT, "BLEND_REMOTE_SEAL_KEY is not 64 hexadecimal digits"};
      }
      const Wiped wiped(key->data(), key->size());
      out.seal_key = std::string_view(reinterpret_cast<const char*>(key->data()), key->size());
    }
  }
  if (!out.user.empty() && out.password.empty()) {
    return {BLEND_E_INVALID_ARGUMENT, "remote: there is a user without a password"};
  }
  return Status::ok();
}

Status check_space(const std::string& space) {
  bool good = !space.empty() && space.size() <= 64;
  for (const char c : space) {
    good = good && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_' || c == '.');
  }
  if (good) return Status::ok();
  return {BLEND_E_INVALID_ARGUMENT,
          "remote_space must be 1 to 64 of letters, digits, '-', '_' and '.'"};
}

}  // namespace

void default_remote(blend_store_options& options) {
  const RemoteOptions defaults;
  options.remote_ttl_s = defaults.ttl_s;
  options.remote_bytes = defaults.most_bytes;
  options.remote_timeout_ms = defaults.timeout_ms;
  options.remote_retry_ms = defaults.retry_ms;
  options.remote_connections = defaults.n_connections;
  options.remote_segment_bytes = defaults.segment_bytes;
}

Result<std::optional<RemoteOptions>> read_remote(const blend_store_options& o) {
  if (o.remote == nullptr || *o.remote == '\0') return std::optional<RemoteOptions>();
  RemoteOptions out;
  BLEND_ASSIGN(out.url, parse_remote_url(o.remote));
  if (o.remote_space != nullptr && *o.remote_space != '\0') out.space = o.remote_space;
  BLEND_RETURN_IF_ERROR(check_space(out.space));
  out.ca_file = text_of(o.remote_ca);
  out.certificate_file = text_of(o.remote_certificate);
  out.key_file = text_of(o.remote_key);
  if (out.certificate_file.empty() != out.key_file.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "remote_certificate and remote_key must both be given, or neither"};
  }
  if (!out.url.tls && !(out.certificate_file.empty() && out.ca_file.empty())) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "remote: certificates are for TLS: write rediss:// in place of redis://"};
  }
  if (o.remote_timeout_ms == 0 || o.remote_timeout_ms > kMostMs || o.remote_retry_ms == 0 ||
      o.remote_retry_ms > kMostMs) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "remote_timeout_ms %u and remote_retry_ms %u must be 1 to %u",
                      o.remote_timeout_ms, o.remote_retry_ms, kMostMs);
  }
  if (o.remote_fuse_ms > kMostMs || o.remote_drain_ms > kMostMs) {
    return make_error(
        BLEND_E_INVALID_ARGUMENT,
        "remote_fuse_ms %u and remote_drain_ms %u must be at most %u; 0 is the default",
        o.remote_fuse_ms, o.remote_drain_ms, kMostMs);
  }
  if (o.remote_connections == 0 || o.remote_connections > kMostConnections) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "remote_connections %u must be 1 to %u",
                      o.remote_connections, kMostConnections);
  }
  if (o.remote_segment_bytes < kLeastSegmentBytes || o.remote_segment_bytes > kMostSegmentBytes) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "remote_segment_bytes %u must be %u to %u",
                      o.remote_segment_bytes, kLeastSegmentBytes, kMostSegmentBytes);
  }
  out.timeout_ms = o.remote_timeout_ms;
  out.retry_ms = o.remote_retry_ms;
  out.fuse_ms = o.remote_fuse_ms;
  if (o.remote_drain_ms != 0) out.drain_ms = o.remote_drain_ms;
  out.n_connections = o.remote_connections;
  out.ttl_s = std::min<uint64_t>(o.remote_ttl_s, uint64_t{100} * 365 * 86400);
  out.most_bytes = o.remote_bytes;
  out.segment_bytes = o.remote_segment_bytes;
  BLEND_RETURN_IF_ERROR(read_secrets(o, out));
  return std::optional(std::move(out));
}

}  // namespace blend::capi
