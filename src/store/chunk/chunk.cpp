#include "store/chunk/chunk.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace blend {

namespace {

const char* domain_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::plain:
      return "blend-chunk-1";
    case RecordKind::contextual:
      return "blend-contextual-chunk-1";
    case RecordKind::clustered:
      return "blend-clustered-chunk-1";
    case RecordKind::preceded:
      return "blend-preceded-chunk-1";
  }
  return "";
}

}  // namespace

Sha256 chunk_id(const Sha256& fingerprint, DType dtype, std::span<const int32_t> prefix,
                std::string_view tenant, std::span<const int32_t> tokens, RecordKind kind) {
  Sha256Hasher hasher;
  // Token ids are hashed as the machine holds them; every supported machine is little-endian, and a
  // list's length precedes it.
  static_assert(std::endian::native == std::endian::little);
  hasher.field(domain_of(kind))
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

constexpr uint64_t kMostBytes = 1ull << 46;  // of K and V: keeps every product in 64 bits

}  // namespace

bool shape_is_sane(const ChunkShape& s) {
  if (s.n_layers == 0 || s.n_tokens == 0 || s.kv_dim == 0) return false;
  if (s.dtype != DType::f32 && s.dtype != DType::f16 && s.dtype != DType::bf16) return false;
  constexpr uint32_t kMostRows = 1u << 30;
  if (s.n_tokens > kMostRows) return false;
  if (s.head_dim != 0 && s.kv_dim % s.head_dim != 0) return false;
  if (!s.layers.empty() && (s.layers.size() != s.n_layers || s.n_layers > kMostListedLayers)) {
    return false;
  }
  const uint64_t size = 2u * static_cast<uint64_t>(dtype_size(s.dtype));
  if (s.layers.empty()) {
    uint64_t total = size;
    for (const uint64_t factor : {s.n_layers, s.n_tokens, s.kv_dim}) {
      if (__builtin_mul_overflow(total, factor, &total)) return false;
    }
    return total <= kMostBytes;
  }
  uint64_t total = 0;
  for (const LayerShape& l : s.layers) {
    const bool is_state = l.keep == LayerShape::Keep::state;
    if (l.keep > LayerShape::Keep::state || l.width == 0 || is_state != (l.n_rows != 0) ||
        l.n_rows > kMostRows) {
      return false;
    }
    uint64_t bytes = size * l.width;
    if (__builtin_mul_overflow(bytes, uint64_t{is_state ? l.n_rows : s.n_tokens}, &bytes))
      return false;
    if (bytes > kMostBytes || (total += bytes) > kMostBytes) return false;
  }
  return true;
}

Status check_record(const ChunkRecord& record) {
  const ChunkShape& s = record.meta.shape;
  if (!shape_is_sane(s)) {
    return make_error(
        BLEND_E_INVALID_ARGUMENT,
        "a chunk of %u layers, %u tokens, kv_dim %u and head_dim %u cannot be stored: each must be "
        "at least 1 (head_dim may be 0, or divides kv_dim), its list of layers as long as it has "
        "layers and of at most %u, and the whole at most 64 TiB",
        s.n_layers, s.n_tokens, s.kv_dim, s.head_dim, kMostListedLayers);
  }
  if (record.meta.tokens.size() != s.n_tokens) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "chunk %s has %zu token ids for %u tokens",
                      to_hex(record.meta.id).c_str(), record.meta.tokens.size(), s.n_tokens);
  }
  if (!record.meta.impact.empty() && record.meta.impact.size() != s.n_tokens) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "chunk %s has %zu impacts for %u tokens",
                      to_hex(record.meta.id).c_str(), record.meta.impact.size(), s.n_tokens);
  }
  if (record.meta.contexts.size() > kMostContexts) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "chunk %s has %zu context passages, more than %zu",
                      to_hex(record.meta.id).c_str(), record.meta.contexts.size(), kMostContexts);
  }
  if (record.meta.draft && record.meta.contexts.empty()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "chunk %s is a draft without context passages",
                      to_hex(record.meta.id).c_str());
  }
  if (record.data.bytes() != s.total_bytes()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "chunk %s has %zu bytes of K and V instead of %zu",
                      to_hex(record.meta.id).c_str(), record.data.bytes(), s.total_bytes());
  }
  return Status::ok();
}

namespace {

class MemorySource final : public ChunkSource {
 public:
  explicit MemorySource(std::shared_ptr<const ChunkRecord> record) : record_(std::move(record)) {}

  const ChunkMeta& meta() const override { return record_->meta; }
  void prefetch(uint32_t) override {}
  Origin origin() const override { return Origin::memory; }
  Status read_layer(uint32_t layer, std::byte* out) override {
    if (layer >= record_->meta.shape.n_layers) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "layer %u of a chunk of %u layers", layer,
                        record_->meta.shape.n_layers);
    }
    std::memcpy(out, record_->k(layer), record_->meta.shape.layer_bytes(layer));
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
