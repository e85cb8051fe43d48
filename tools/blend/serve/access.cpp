#include "access.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace blend_cli::serve {
namespace {

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return text;
}

// Without the port and the brackets of an IPv6 address; unchanged where it has no such form.
std::string name_of(const std::string& host) {
  const size_t end = host.starts_with('[') ? host.find(']') : host.find(':');
  const bool is_bracketed = host.starts_with('[') && end != std::string::npos;
  const std::string after =
      end == std::string::npos ? "" : host.substr(is_bracketed ? end + 1 : end);
  const bool has_port =
      after.starts_with(':') && after.find_first_not_of("0123456789", 1) == std::string::npos;
  if (!after.empty() && !has_port) return host;
  if (is_bracketed) return lower(host.substr(1, end - 1));
  std::string name = host.substr(0, end);
  if (name.ends_with('.')) name.pop_back();
  return lower(std::move(name));
}

bool is_address(const std::string& name) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, name.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

uint32_t number_of(const std::string& where, const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) {
    throw std::runtime_error(where + "'" + text + "' is not a number of 1 or more");
  }
  return value;
}

}  // namespace

bool is_loopback(const std::string& name) {
  unsigned char bytes[16];
  if (inet_pton(AF_INET, name.c_str(), bytes) == 1) return bytes[0] == 127;
  in6_addr address{};
  if (inet_pton(AF_INET6, name.c_str(), &address) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&address) ||
           (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
  }
  return name == "localhost" || name.ends_with(".localhost");
}

KeyDigest digest_of(std::string_view key) {
  KeyDigest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

Access::Access(std::string tenant)
    : tenant_(std::move(tenant)), anyone_(std::make_unique<Client>()) {
  anyone_->tenant = tenant_;
}

void Access::set_key(const std::string& key) {
  auto client = std::make_unique<Client>();
  client->tenant = tenant_;
  keys_.push_back({digest_of(key), std::move(client)});
}

void Access::read_keys(std::string_view text) {
  const auto word_of = [](std::string_view& line) {
    constexpr const char* kBlank = " \t\r";
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    const std::string_view word = line.substr(0, line.find_first_of(kBlank));
    line.remove_prefix(word.size());
    return word;
  };
  for (size_t n = 1; !text.empty(); ++n) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string_view key = word_of(line);
    if (key.empty() || key.starts_with('#')) continue;
    const std::string where = "line " + std::to_string(n) + ": ";
    auto client = std::make_unique<Client>();
    client->metrics = false;
    client->tenant = word_of(line);
    if (client->tenant.empty()) {
      throw std::runtime_error(where + "a key has no tenant after it");
    }
    for (std::string word(word_of(line)); !word.empty(); word = word_of(line)) {
      const size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
      if (name == "parallel") {
        client->parallel = number_of(where, value);
      } else if (name == "max-tokens") {
        client->max_tokens = number_of(where, value);
      } else if (word == "metrics") {
        client->metrics = true;
      } else {
        throw std::runtime_error(where + "there are parallel=N, max-tokens=N and metrics, not '" +
                                 word + "'");
      }
    }
    const KeyDigest digest = digest_of(key);
    for (const Key& other : keys_) {
      if (other.digest == digest) throw std::runtime_error(where + "the key is there twice");
    }
    keys_.push_back({digest, std::move(client)});
  }
  if (keys_.empty()) throw std::runtime_error("it has no keys");
}

void Access::set_hosts(const std::string& host, const std::vector<std::string>& more) {
  loopback_ = is_loopback(host);
  hosts_ = {lower(host)};  // an address of IPv6 has no brackets here
  for (const std::string& name : more) hosts_.push_back(name_of(name));
}

Client* Access::client(const HttpHead& head) const {
  if (keys_.empty()) return anyone_.get();
  static constexpr std::string_view kScheme = "bearer ";
  const std::string* const given = head.field("Authorization");
  if (given == nullptr || lower(given->substr(0, kScheme.size())) != kScheme) return nullptr;
  std::string key = given->substr(kScheme.size());
  const KeyDigest digest = digest_of(key);
  OPENSSL_cleanse(key.data(), key.size());
  Client* found = nullptr;
  for (const Key& one : keys_) {
    if (CRYPTO_memcmp(one.digest.data(), digest.data(), digest.size()) == 0) {
      found = one.client.get();
    }
  }
  return found;
}

bool Access::is_own_host(const std::string& host) const {
  const std::string name = name_of(host);
  if (is_loopback(name) || std::find(hosts_.begin(), hosts_.end(), name) != hosts_.end()) {
    return true;
  }
  // A page is never named by an address, and a public server does not know all of its own.
  return !loopback_ && is_address(name);
}

bool Access::is_allowed_origin(const std::string& origin) const {
  return std::any_of(origins_.begin(), origins_.end(),
                     [&](const std::string& one) { return one == "*" || one == origin; });
}

std::optional<std::string> Access::foreign(const HttpHead& head) const {
  if (keys_.empty() && !head.host.empty() && !is_own_host(head.host)) {
    return "this server has no key and is not known as '" + head.host.substr(0, 100) +
           "' (--allow-host)";
  }
  const std::string* const origin = head.field("Origin");
  if (origin == nullptr || is_allowed_origin(*origin)) return std::nullopt;
  if (*origin == "http://" + head.host || *origin == "https://" + head.host) return std::nullopt;
  return "pages of '" + origin->substr(0, 100) + "' may not ask this server (--cors-origin)";
}

HttpFields Access::cors(const HttpHead& head) const {
  const std::string* const origin = head.field("Origin");
  if (origins_.empty()) return {};
  HttpFields fields = {{"Vary", "Origin"}};
  if (origin == nullptr || !is_allowed_origin(*origin)) return fields;
  fields.emplace_back("Access-Control-Allow-Origin", *origin);
  fields.emplace_back("Access-Control-Expose-Headers", "X-Request-Id");
  if (head.method != "OPTIONS") return fields;
  fields.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
  // Clients of the API send headers of their own (x-stainless-...).
  const std::string* const wanted = head.field("Access-Control-Request-Headers");
  fields.emplace_back("Access-Control-Allow-Headers",
                      wanted != nullptr ? *wanted : "Authorization, Content-Type");
  fields.emplace_back("Access-Control-Max-Age", "600");
  if (head.field("Access-Control-Request-Private-Network") != nullptr) {
    fields.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return fields;
}

}  // namespace blend_cli::serve
