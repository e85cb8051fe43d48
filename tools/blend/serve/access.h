// Access control: keys with the tenant and the limits of each, hosts that this server goes by, and
// pages of browsers that may use it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http.h"

namespace blend_cli::serve {

// One key's owner. Several requests of it may run at once.
struct Client {
  std::string tenant;       // whose chunks are looked up and stored; "": those without a tenant
  size_t parallel = 0;      // most requests that compute or wait; 0: any number
  uint32_t max_tokens = 0;  // of an answer; 0: the server's
  bool metrics = true;      // may read /metrics, which tells of all clients
  std::atomic<size_t> n_present{0};
};

// Whether this name or address leads to this machine alone.
bool is_loopback(const std::string& name);

// A SHA-256: nothing else of a key is kept.
using KeyDigest = std::array<unsigned char, 32>;
KeyDigest digest_of(std::string_view key);

// Immutable but for the clients' counters.
class Access {
 public:
  // `tenant`: of clients with the one key, or without any.
  explicit Access(std::string tenant);

  // The key of all clients. Either this is called, once, or read_keys() is.
  void set_key(const std::string& key);
  // Lines of KEY TENANT [parallel=N] [max-tokens=N] [metrics]; # begins a comment. Throws
  // std::runtime_error, which names the line.
  void read_keys(std::string_view text);
  bool has_keys() const { return !keys_.empty(); }

  // Names that a keyless server goes by: `host`, where it listens, and more.
  void set_hosts(const std::string& host, const std::vector<std::string>& more);
  // "*": any.
  void set_origins(std::vector<std::string> origins) { origins_ = std::move(origins); }

  // Client of its Authorization; null: it has no key of ours. Takes the same time whichever key
  // matches and however much of one is right.
  Client* client(const HttpHead& head) const;
  // Why a browser's page, or a name pointed at this machine, is not answered; none: it is.
  std::optional<std::string> foreign(const HttpHead& head) const;
  // Headers that let a page of another origin read the answer; none where there is no such page.
  HttpFields cors(const HttpHead& head) const;

 private:
  struct Key {
    KeyDigest digest;
    std::unique_ptr<Client> client;
  };
  bool is_own_host(const std::string& host) const;
  bool is_allowed_origin(const std::string& origin) const;

  const std::string tenant_;
  std::vector<Key> keys_;
  std::unique_ptr<Client> anyone_;
  bool loopback_ = true;
  std::vector<std::string> hosts_;
  std::vector<std::string> origins_;
};

}  // namespace blend_cli::serve
