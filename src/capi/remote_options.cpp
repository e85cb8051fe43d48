#include "capi/remote_options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/hash.h"
#include "base/secret.h"
#include "capi/structs.h"

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

Result<Secret> ask(const blend_remote_options& o, uint32_t secret, const char* name) {
  std::array<char, kMostSecret> out{};
  const Wiped wiped(out.data(), out.size());
  size_t n = 0;
  const int32_t rc = o.secret(o.secret_user, secret, out.data(), out.size(), &n);
  if (rc != 0) return Status{BLEND_E_CALLBACK, "remote_secret asked to stop", rc};
  if (n > out.size()) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "remote_secret: the %s has %zu bytes, of at most %zu", name, n, out.size());
  }
  return Secret(std::string_view(out.data(), n));
}

Status read_secrets(const blend_remote_options& o, RemoteOptions& out) {
  if (o.secret != nullptr) {
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

blend_remote_options default_remote_options() {
  const RemoteOptions defaults;
  blend_remote_options o{};
  o.struct_size = sizeof o;
  o.connections = defaults.n_connections;
  o.ttl_s = defaults.ttl_s;
  o.bytes = defaults.most_bytes;
  o.timeout_ms = defaults.timeout_ms;
  o.retry_ms = defaults.retry_ms;
  o.segment_bytes = defaults.segment_bytes;
  return o;
}

Result<std::optional<RemoteOptions>> read_remote(const blend_remote_options* options) {
  if (options == nullptr) return std::optional<RemoteOptions>();
  blend_remote_options o = default_remote_options();
  BLEND_RETURN_IF_ERROR(read_struct(options, o));
  if (o.url == nullptr || *o.url == '\0') return std::optional<RemoteOptions>();
  RemoteOptions out;
  BLEND_ASSIGN(out.url, parse_remote_url(o.url));
  if (o.space != nullptr && *o.space != '\0') out.space = o.space;
  BLEND_RETURN_IF_ERROR(check_space(out.space));
  out.ca_file = text_of(o.ca);
  out.certificate_file = text_of(o.certificate);
  out.key_file = text_of(o.key);
  if (out.certificate_file.empty() != out.key_file.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "remote_certificate and remote_key must both be given, or neither"};
  }
  if (!out.url.tls && !(out.certificate_file.empty() && out.ca_file.empty())) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "remote: certificates are for TLS: write rediss:// in place of redis://"};
  }
  if (o.timeout_ms == 0 || o.timeout_ms > kMostMs || o.retry_ms == 0 || o.retry_ms > kMostMs) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "remote_timeout_ms %u and remote_retry_ms %u must be 1 to %u", o.timeout_ms,
                      o.retry_ms, kMostMs);
  }
  if (o.fuse_ms > kMostMs || o.drain_ms > kMostMs) {
    return make_error(
        BLEND_E_INVALID_ARGUMENT,
        "remote_fuse_ms %u and remote_drain_ms %u must be at most %u; 0 is the default", o.fuse_ms,
        o.drain_ms, kMostMs);
  }
  if (o.connections == 0 || o.connections > kMostConnections) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "remote_connections %u must be 1 to %u",
                      o.connections, kMostConnections);
  }
  if (o.segment_bytes < kLeastSegmentBytes || o.segment_bytes > kMostSegmentBytes) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "remote_segment_bytes %u must be %u to %u",
                      o.segment_bytes, kLeastSegmentBytes, kMostSegmentBytes);
  }
  out.timeout_ms = o.timeout_ms;
  out.retry_ms = o.retry_ms;
  out.fuse_ms = o.fuse_ms;
  if (o.drain_ms != 0) out.drain_ms = o.drain_ms;
  out.n_connections = o.connections;
  out.ttl_s = std::min<uint64_t>(o.ttl_s, uint64_t{100} * 365 * 86400);
  out.most_bytes = o.bytes;
  out.segment_bytes = o.segment_bytes;
  BLEND_RETURN_IF_ERROR(read_secrets(o, out));
  return std::optional(std::move(out));
}

}  // namespace blend::capi

extern "C" {

int32_t blend_remote_options_init(blend_remote_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, blend::capi::default_remote_options());
}

}  // extern "C"
