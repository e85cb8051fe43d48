#include "store/remote/encryptor.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

namespace blend {
namespace {

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)>;

Cipher new_cipher() { return {EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free}; }

const unsigned char* bytes_of(const std::byte* p) {
  return reinterpret_cast<const unsigned char*>(p);
}

// Into `out`, which may be a key: a copy on the stack would stay there.
void hmac(const void* key, size_t key_bytes, std::string_view text, Sha256& out) {
  unsigned int n = 0;
  (void)HMAC(EVP_sha256(), key, static_cast<int>(key_bytes),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(), &n);
}

Status cannot_seal() { return {BLEND_E_INTERNAL, "OpenSSL cannot seal a value"}; }

// OpenSSL counts in int.
constexpr size_t kMostAtOnce = size_t{1} << 30;

}  // namespace

// One for each use, so that none says anything of the other.
struct Encryptor::Keys {
  Sha256 values{};
  Sha256 names{};
  ~Keys() {
    OPENSSL_cleanse(values.data(), values.size());
    OPENSSL_cleanse(names.data(), names.size());
  }
};

Encryptor::Encryptor(std::unique_ptr<Keys> keys) : keys_(std::move(keys)) {}
Encryptor::~Encryptor() = default;

Result<std::shared_ptr<const Encryptor>> Encryptor::create(std::string_view key) {
  if (key.size() != kSealKeyBytes) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the seal key must have %zu bytes, and has %zu",
                      kSealKeyBytes, key.size());
  }
  auto keys = std::make_unique<Keys>();
  hmac(key.data(), key.size(), "blend-remote-values-1", keys->values);
  hmac(key.data(), key.size(), "blend-remote-names-1", keys->names);
  return std::shared_ptr<const Encryptor>(new Encryptor(std::move(keys)));
}

Sha256 Encryptor::name_of(std::string_view what) const {
  Sha256 name{};
  hmac(keys_->names.data(), keys_->names.size(), what, name);
  return name;
}

Result<Sealing> Encryptor::begin(std::string_view bound, std::byte* nonce) const {
  auto* const nonce_bytes = reinterpret_cast<unsigned char*>(nonce);
  Sealing sealing;
  sealing.cipher_.reset(EVP_CIPHER_CTX_new());
  EVP_CIPHER_CTX* const cipher = sealing.cipher_.get();
  int n = 0;
  if (cipher == nullptr || RAND_bytes(nonce_bytes, kNonceBytes) != 1 ||
      EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), nullptr, keys_->values.data(), nonce_bytes) !=
          1 ||
      EVP_EncryptUpdate(cipher, nullptr, &n, reinterpret_cast<const unsigned char*>(bound.data()),
                        static_cast<int>(bound.size())) != 1) {
    return cannot_seal();
  }
  return sealing;
}

void Sealing::FreeCipher::operator()(evp_cipher_ctx_st* cipher) const noexcept {
  EVP_CIPHER_CTX_free(cipher);
}

Status Sealing::add(std::span<const std::byte> text, std::byte* out) {
  auto* const to = reinterpret_cast<unsigned char*>(out);
  for (size_t at = 0; at < text.size();) {
    const size_t step = std::min(text.size() - at, kMostAtOnce);
    int n = 0;
    if (EVP_EncryptUpdate(cipher_.get(), to + at, &n, bytes_of(text.data()) + at,
                          static_cast<int>(step)) != 1) {
      return cannot_seal();
    }
    at += step;
  }
  return Status::ok();
}

Status Sealing::finish(std::byte* tag) {
  unsigned char end[16];
  int n = 0;
  if (EVP_EncryptFinal_ex(cipher_.get(), end, &n) != 1 ||
      EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag) != 1) {
    return cannot_seal();
  }
  return Status::ok();
}

Status Encryptor::open(std::span<std::byte> text, std::string_view bound, const std::byte* nonce,
                       const std::byte* tag) const {
  const Cipher cipher = new_cipher();
  int n = 0;
  std::array<unsigned char, kTagBytes> wanted{};
  std::memcpy(wanted.data(), tag, kTagBytes);
  bool good = cipher != nullptr &&
              EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, keys_->values.data(),
                                 bytes_of(nonce)) == 1 &&
              EVP_DecryptUpdate(cipher.get(), nullptr, &n,
                                reinterpret_cast<const unsigned char*>(bound.data()),
                                static_cast<int>(bound.size())) == 1;
  auto* const bytes = reinterpret_cast<unsigned char*>(text.data());
  for (size_t at = 0; good && at < text.size();) {
    const size_t step = std::min(text.size() - at, kMostAtOnce);
    good = EVP_DecryptUpdate(cipher.get(), bytes + at, &n, bytes + at, static_cast<int>(step)) == 1;
    at += step;
  }
  unsigned char end[16];
  good = good &&
         EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, wanted.data()) == 1 &&
         EVP_DecryptFinal_ex(cipher.get(), end, &n) == 1;
  if (good) return Status::ok();
  if (!text.empty()) std::memset(text.data(), 0, text.size());
  return {BLEND_E_CORRUPT, "a sealed value is damaged, or was sealed for another place"};
}

}  // namespace blend
