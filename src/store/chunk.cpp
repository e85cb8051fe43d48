#include "store/chunk.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace blend {

Sha256 chunk_id(const Sha256& fingerprint, DType dtype, std::span<const int32_t> prefix,
                std::string_view tenant, std::span<const int32_t> tokens) {
  Sha256Hasher hasher;
  // Token ids are hashed as the machine holds them; every supported machine is little-endian, and a
  // list's length stands in front of it.
  static_assert(std::endian::native == std::endian::little);
  hasher.field("blend-chunk-1")
      .field(fingerprint.data(), fingerprint.size())
      .field(static_cast<uint64_t>(dtype))
      .field(prefix.data(), prefix.size_bytes())
      .field(tenant)
      .field(tokens.data(), tokens.size_bytes());
  return hasher.finish();
}

TenantTag tenant_tag(std::string_view tenant) {
  TenantTag tag{};
  if (tenant.empty()) return tag;
  const Sha256 hash = Sha256Hasher().field("blend-tenant-1").field(tenant).finish();
  std::copy_n(hash.begin(), tag.size(), tag.begin());
  return tag;
}

namespace {

class MemorySource final : public ChunkSource {
 public:
  explicit MemorySource(std::shared_ptr<const ChunkRecord> record) : record_(std::move(record)) {}

  const ChunkMeta& meta() const override { return record_->meta; }
  void prefetch(uint32_t) override {}
  bool from_memory() const override { return true; }
  Status read_layer(uint32_t layer, std::byte* out) override {
    if (layer >= record_->meta.shape.n_layers) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "layer %u of a chunk of %u layers", layer,
                        record_->meta.shape.n_layers);
    }
    std::memcpy(out, record_->k(layer), record_->meta.shape.layer_bytes());
    return Status::ok();
  }

 private:
  std::shared_ptr<const ChunkRecord> record_;
};

}  // namespace

std::unique_ptr<ChunkSource> make_memory_source(std::shared_ptr<const ChunkRecord> record) {
  return std::make_unique<MemorySource>(std::move(record));
}

}  // namespace blend
