// What a remote tier is told: where, as whom, and how long it may take.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "base/status.h"

namespace blend {

struct RemoteAddress {
  std::string host;
  uint16_t port = 0;
  std::string name() const { return host + ":" + std::to_string(port); }
  bool operator==(const RemoteAddress&) const = default;
};

struct RemoteUrl {
  bool tls = false;
  bool cluster = false;
  std::vector<RemoteAddress> seeds;  // at least one; of a cluster any of its nodes
  uint32_t database = 0;
};

// Letters, digits and ".-_:%", at most 255: what may be looked up, and stand in a log.
bool is_host(std::string_view text);

// UNSUPPORTED in a build without the remote tier (absent.cpp).
Status check_remote_built();

// redis[s][+cluster]://HOST[:PORT][,HOST[:PORT]...][/DATABASE]. INVALID_ARGUMENT, never with what
// could be a password in the sentence.
Result<RemoteUrl> parse_remote_url(const std::string& url);

inline constexpr uint32_t kLeastSegmentBytes = 64u << 10;
inline constexpr uint32_t kMostSegmentBytes = 32u << 20;

struct RemoteOptions {
  RemoteUrl url;
  std::string space = "blend";   // in front of every key
  std::string user;              // "" with a password: the server's default user
  Secret password;               // "": no AUTH
  Secret seal_key;               // 32 bytes, or "": values are not sealed
  std::string ca_file;           // PEM; "": the system's
  std::string certificate_file;  // PEM of the client; "": none
  std::string key_file;
  uint32_t timeout_ms = 1000;        // of one request, its answer included
  uint32_t retry_ms = 5000;          // from a failure until the server is probed
  uint32_t n_connections = 4;        // at work at a time
  uint64_t ttl_s = 7 * 86400;        // 0: values do not expire
  uint64_t most_bytes = 1ull << 30;  // of chunks that came and are not on disk yet
  uint32_t segment_bytes = 4u << 20;
  uint32_t fuse_ms = 0;      // of all look-ups of a fuse together; 0: half of timeout_ms
  uint32_t drain_ms = 3000;  // of a flush, and of closing, for what goes up
};

}  // namespace blend
