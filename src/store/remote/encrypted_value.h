// EncryptedValue: bytes that are sealed as they are sent: nonce, ciphertext, tag.
#pragma once

#include <array>

#include "base/buffer.h"
#include "store/remote/client/value_source.h"
#include "store/remote/encryptor.h"

namespace blend {

// As ValueSource says. Each time it is sent under a nonce of its own.
class EncryptedValue final : public ValueSource {
 public:
  // `bound`: as for Encryptor::begin(). All three must outlive it.
  EncryptedValue(const Encryptor& encryptor, std::span<const Part> parts, std::string_view bound)
      : encryptor_(encryptor), parts_(parts), bound_(bound) {}
  uint64_t bytes() const override;
  Status begin() override;
  Status next(std::vector<Part>& out, bool* last) override;

 private:
  const Encryptor& encryptor_;
  const std::span<const Part> parts_;
  const std::string_view bound_;
  AlignedBuffer space_;  // of the piece that is being sent
  Sealing sealing_;
  std::array<std::byte, kNonceBytes> nonce_{};
  std::array<std::byte, kTagBytes> tag_{};
  bool nonce_sent_ = false;
  size_t part_ = 0;  // where it is in parts_
  size_t at_ = 0;    // in that part
};

}  // namespace blend
