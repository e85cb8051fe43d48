#include "store/remote/encrypted_value.h"

#include <algorithm>

namespace blend {
namespace {

// Small enough that it lies in the cache when the socket takes it.
constexpr size_t kAtOnceBytes = 128u << 10;

}  // namespace

uint64_t EncryptedValue::bytes() const {
  return kNonceBytes + PartsValue(parts_).bytes() + kTagBytes;
}

Status EncryptedValue::begin() {
  if (space_.bytes() == 0) {
    const uint64_t most = std::min<uint64_t>(kAtOnceBytes, PartsValue(parts_).bytes());
    BLEND_ASSIGN(space_, AlignedBuffer::allocate(std::max<uint64_t>(1, most)));
  }
  BLEND_ASSIGN(sealing_, encryptor_.begin(bound_, nonce_.data()));
  nonce_sent_ = false;
  part_ = at_ = 0;
  return Status::ok();
}

Status EncryptedValue::next(std::vector<Part>& out, bool* last) {
  if (!nonce_sent_) out.emplace_back(nonce_);
  nonce_sent_ = true;
  size_t n = 0;
  while (part_ < parts_.size() && n < space_.bytes()) {
    const Part rest = parts_[part_].subspan(at_);
    const Part piece = rest.first(std::min(rest.size(), space_.bytes() - n));
    BLEND_RETURN_IF_ERROR(sealing_.add(piece, space_.data() + n));
    n += piece.size();
    at_ += piece.size();
    if (piece.size() == rest.size()) {
      ++part_;
      at_ = 0;
    }
  }
  if (n > 0) out.emplace_back(space_.data(), n);
  *last = part_ == parts_.size();
  if (!*last) return Status::ok();
  BLEND_RETURN_IF_ERROR(sealing_.finish(tag_.data()));
  out.emplace_back(tag_);
  return Status::ok();
}

}  // namespace blend
