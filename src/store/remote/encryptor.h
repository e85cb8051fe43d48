// Encryptor: AES-256-GCM over what goes to a server that others may read (OpenSSL). Which key a
// value stands under is told by nothing in it: names are hashed with the key, too.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace blend {

// A sealed value is nonce, ciphertext (as long as the text), tag.
inline constexpr size_t kNonceBytes = 12;
inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kSealKeyBytes = 32;

// One value that is being sealed, bytes after bytes. Used by one thread. INTERNAL: OpenSSL fails.
class Sealing {
 public:
  Status add(std::span<const std::byte> text, std::byte* out);  // as many bytes
  Status finish(std::byte* tag);

 private:
  friend class Encryptor;
  struct FreeCipher {
    void operator()(evp_cipher_ctx_st* cipher) const noexcept;
  };
  std::unique_ptr<evp_cipher_ctx_st, FreeCipher> cipher_;
};

// Immutable, so thread-safe.
class Encryptor {
 public:
  // key: kSealKeyBytes. INVALID_ARGUMENT.
  static Result<std::shared_ptr<const Encryptor>> create(std::string_view key);
  ~Encryptor();
  Encryptor(const Encryptor&) = delete;
  Encryptor& operator=(const Encryptor&) = delete;

  // With a fresh nonce. `bound` is what the value is bound to and must be known to open it.
  Result<Sealing> begin(std::string_view bound, std::byte* nonce) const;
  // In place. CORRUPT: it was not sealed with this key for this place, or is damaged; the bytes are
  // zeros then.
  Status open(std::span<std::byte> text, std::string_view bound, const std::byte* nonce,
              const std::byte* tag) const;
  // The name that the server sees in place of an id.
  Sha256 name_of(std::string_view what) const;

 private:
  struct Keys;
  explicit Encryptor(std::unique_ptr<Keys> keys);
  const std::unique_ptr<Keys> keys_;
};

}  // namespace blend
