#include "base/hash.h"

// Only the functions of SHA-256. EVP's would start the whole of OpenSSL in a host's process: they
// read its configuration file and set up providers and exit handlers; linked into the library, they
// are five megabytes. OpenSSL 3 deprecates these for callers who want to choose a provider.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <xxhash.h>

#include <bit>
#include <cstdlib>
#include <new>

namespace blend {

struct Sha256Hasher::Impl {
  SHA256_CTX context;
};

Sha256Hasher::Sha256Hasher() : impl_(std::make_unique<Impl>()) { SHA256_Init(&impl_->context); }
Sha256Hasher::~Sha256Hasher() = default;

Sha256Hasher& Sha256Hasher::field(const void* data, size_t bytes) {
  field(static_cast<uint64_t>(bytes));
  SHA256_Update(&impl_->context, data, bytes);
  return *this;
}

Sha256Hasher& Sha256Hasher::field(uint64_t number) {
  std::array<uint8_t, 8> little_endian;
  for (size_t i = 0; i < 8; ++i) little_endian[i] = static_cast<uint8_t>(number >> (8 * i));
  SHA256_Update(&impl_->context, little_endian.data(), little_endian.size());
  return *this;
}

Sha256 Sha256Hasher::finish() {
  Sha256 digest{};
  SHA256_Final(digest.data(), &impl_->context);
  return digest;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const uint8_t b : bytes) {
    hex.push_back(kDigits[b >> 4]);
    hex.push_back(kDigits[b & 15]);
  }
  return hex;
}

Result<Sha256> sha256_from_hex(std::string_view hex) {
  const auto bad = [&] {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "a chunk id is 64 hexadecimal digits; '%.*s' is not",
                      static_cast<int>(hex.size() < 80 ? hex.size() : 80), hex.data());
  };
  Sha256 digest{};
  if (hex.size() != 2 * digest.size()) return bad();
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    int value = 0;
    if (c >= '0' && c <= '9') {
      value = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      value = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      value = c - 'A' + 10;
    } else {
      return bad();
    }
    digest[i / 2] = static_cast<uint8_t>(digest[i / 2] << 4 | value);
  }
  return digest;
}

uint64_t checksum64(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

struct Checksum64::Impl {
  XXH3_state_t* state = XXH3_createState();
  ~Impl() { XXH3_freeState(state); }
};

Checksum64::Checksum64() : impl_(std::make_unique<Impl>()) {
  if (impl_->state == nullptr) throw std::bad_alloc();
  reset();
}
Checksum64::~Checksum64() = default;

void Checksum64::reset() { XXH3_64bits_reset(impl_->state); }

void Checksum64::add(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(impl_->state, data, bytes);
}

uint64_t Checksum64::value() const { return XXH3_64bits_digest(impl_->state); }

}  // namespace blend
