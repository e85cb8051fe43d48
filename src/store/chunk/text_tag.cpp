#include "store/chunk/text_tag.h"

#include <algorithm>

#include "base/hash.h"

namespace blend {

TextTag text_tag(const ChunkMeta& meta) {
  const Sha256 hash = Sha256Hasher()
                          .field("blend-text-1")
                          .field(meta.fingerprint.data(), meta.fingerprint.size())
                          .field(static_cast<uint64_t>(meta.shape.dtype))
                          .field(meta.tenant.data(), meta.tenant.size())
                          .field(meta.tokens.data(), meta.tokens.size() * sizeof(int32_t))
                          .finish();
  TextTag tag{};
  std::copy_n(hash.begin(), tag.size(), tag.begin());
  return tag;
}

}  // namespace blend
