// Hashes: SHA-256 (OpenSSL) where an adversary may choose the input, XXH3 (xxHash) for damage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace blend {

using Sha256 = std::array<uint8_t, 32>;

// Incremental SHA-256. Not thread-safe. Every field is hashed with its length in front, so that no
// two sequences of fields give the same byte stream.
class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  Sha256Hasher(const Sha256Hasher&) = delete;
  Sha256Hasher& operator=(const Sha256Hasher&) = delete;

  Sha256Hasher& field(const void* data, size_t bytes);
  Sha256Hasher& field(std::string_view text) { return field(text.data(), text.size()); }
  Sha256Hasher& field(uint64_t number);  // hashed little-endian
  Sha256 finish();                       // once, last

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// For unordered containers: a digest is as good a hash as any.
struct Sha256Hash {
  size_t operator()(const Sha256& digest) const {
    size_t hash = 0;
    std::memcpy(&hash, digest.data(), sizeof hash);
    return hash;
  }
};

std::string to_hex(std::span<const uint8_t> bytes);
Result<Sha256> sha256_from_hex(std::string_view hex);

// XXH3-64 of a block of memory.
uint64_t checksum64(const void* data, size_t bytes);

// The same for bytes that come in parts. Not thread-safe.
class Checksum64 {
 public:
  Checksum64();
  ~Checksum64();
  Checksum64(const Checksum64&) = delete;
  Checksum64& operator=(const Checksum64&) = delete;

  void reset();
  void add(const void* data, size_t bytes);
  uint64_t value() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace blend
