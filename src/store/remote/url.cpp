#include <algorithm>
#include <string_view>

#include "store/remote/client/number.h"
#include "store/remote/options.h"

namespace blend {
namespace {

constexpr uint16_t kPort = 6379;

Status refuse(const char* why) {
  return make_error(BLEND_E_INVALID_ARGUMENT,
                    "remote: %s; write redis://HOST:PORT, rediss:// for TLS, redis+cluster:// or "
                    "rediss+cluster:// for a cluster",
                    why);
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_' || c == ':' || c == '%';
}

Result<RemoteAddress> read_address(std::string_view text) {
  RemoteAddress address;
  address.port = kPort;
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {  // IPv6
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return refuse("'[' without ']'");
    host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    has_port = !rest.empty();
    if (has_port && rest.front() != ':') return refuse("there is something behind ']'");
    if (has_port) port = rest.substr(1);
  } else if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  if (host.empty()) return refuse("a host is missing");
  if (!is_host(host)) return refuse("a host is too long, or has a character that no host has");
  if (has_port && (!read_number(port, &address.port) || address.port == 0)) {
    return refuse("a port is no number from 1 to 65535");
  }
  address.host = host;
  return address;
}

}  // namespace

bool is_host(std::string_view text) {
  return !text.empty() && text.size() <= 255 &&
         std::all_of(text.begin(), text.end(), is_host_character);
}

Status check_remote_built() { return Status::ok(); }

Result<RemoteUrl> parse_remote_url(const std::string& url) {
  const size_t colon = url.find("://");
  if (colon == std::string::npos) return refuse("there is no scheme");
  RemoteUrl out;
  const std::string_view scheme = std::string_view(url).substr(0, colon);
  out.tls = scheme == "rediss" || scheme == "rediss+cluster";
  out.cluster = scheme == "redis+cluster" || scheme == "rediss+cluster";
  if (!out.tls && !out.cluster && scheme != "redis") return refuse("the scheme is not known");
  std::string_view rest = std::string_view(url).substr(colon + 3);
  // Never repeated in a sentence: it may be a password.
  if (rest.find('@') != std::string_view::npos) {
    return refuse(
        "user and password do not belong into the URL, which ends up in logs: give them by the "
        "callback or in BLEND_REMOTE_USER and BLEND_REMOTE_PASSWORD");
  }
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (!database.empty()) {
      if (!read_number(database, &out.database)) return refuse("the database is no number");
      if (out.cluster && out.database != 0) return refuse("a cluster has one database, 0");
    }
  }
  for (;;) {
    const size_t comma = rest.find(',');
    BLEND_ASSIGN(RemoteAddress address, read_address(rest.substr(0, comma)));
    out.seeds.push_back(std::move(address));
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  if (!out.cluster && out.seeds.size() > 1) {
    return refuse("several hosts are seeds of a cluster: write redis+cluster://");
  }
  return out;
}

}  // namespace blend
