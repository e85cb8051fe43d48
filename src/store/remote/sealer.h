// Sealer: AES-256-GCM over what goes to a server that others may read (OpenSSL). Which key a value
// stands under is told by nothing in it: names are hashed with the key, too.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"

namespace blend {

// A sealed value is nonce, ciphertext (as long as the text), tag.
inline constexpr size_t kNonceBytes = 12;
inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kSealKeyBytes = 32;

// Immutable, so thread-safe.
class Sealer {
 public:
  // key: kSealKeyBytes. INVALID_ARGUMENT.
  static Result<std::shared_ptr<const Sealer>> create(std::string_view key);
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  // Ciphertext of `parts` in a row to `out`, as many bytes; a fresh nonce and the tag beside it.
  // `bound` is what the value is bound to and must be known to open it.
  Status seal(std::span<const std::span<const std::byte>> parts, std::string_view bound,
              std::byte* out, std::byte* nonce, std::byte* tag) const;
  // In place. CORRUPT: it was not sealed with this key for this place, or is damaged; the bytes are
  // zeros then.
  Status open(std::span<std::byte> text, std::string_view bound, const std::byte* nonce,
              const std::byte* tag) const;
  // The name that the server sees in place of an id.
  Sha256 name_of(std::string_view what) const;

 private:
  struct Keys;
  explicit Sealer(std::unique_ptr<Keys> keys);
  const std::unique_ptr<Keys> keys_;
};

}  // namespace blend
