#include "store/chunk/description.h"

#include <algorithm>

#include "base/checksum_trailer.h"
#include "base/wire.h"
#include "store/chunk/layer_shapes.h"
#include "store/chunk/row_impact.h"

namespace blend {
namespace {

constexpr uint32_t kManifestMagic = 0x4d4b4c42;  // "BLKM"
constexpr size_t kFixedBytes = 4 + 2 + 1 + 1 + 32 + 32 + 4 * 5 + 8 + 4 + 4;
constexpr size_t kExtentBytes = 3 * 8;
// Flags: what follows the layers.
constexpr uint32_t kHasImpact = 1;    // two floats a token
constexpr uint32_t kHasTenant = 2;    // the tenant, where it is not the empty one
constexpr uint32_t kHasName = 4;      // label and tags; their lengths precede the token ids
constexpr uint32_t kHasContexts = 8;  // ids of the passages; their number precedes the token ids
constexpr uint32_t kHasLayers = 16;   // what each layer keeps; precedes the token ids
constexpr uint32_t kIsDraft = 32;     // nothing follows; only with context passages
constexpr uint32_t kKnownFlags =
    kHasImpact | kHasTenant | kHasName | kHasContexts | kHasLayers | kIsDraft;

bool has_tenant(const ChunkMeta& meta) { return meta.tenant != TenantTag{}; }

// Label and tags, and the lengths of both.
uint64_t name_bytes(const ChunkName& name) {
  return name.is_empty() ? 0
                         : 2 * sizeof(uint16_t) + name.label.value_or("").size() +
                               name.tags.value_or("").size();
}

uint64_t context_bytes(const ChunkMeta& meta) {
  return meta.contexts.empty() ? 0 : sizeof(uint16_t) + meta.contexts.size() * sizeof(Sha256);
}

Status corrupt(const Sha256& id, const char* what) {
  return make_error(BLEND_E_CORRUPT, "the description of chunk %s is damaged: %s",
                    to_hex(id).c_str(), what);
}

}  // namespace

uint64_t StoredLayout::version() const {
  std::vector<uint64_t> sums;
  sums.reserve(layers.size() + 1);
  for (const LayerExtent& e : layers) sums.push_back(e.checksum);
  sums.push_back(static_cast<uint64_t>(meta.shape.dtype));
  for (const LayerShape& l : meta.shape.layers) {
    sums.push_back(static_cast<uint64_t>(l.keep));
    sums.push_back(uint64_t{l.width} << 32 | l.n_rows);
  }
  return checksum64(sums.data(), sums.size() * sizeof(uint64_t));
}

uint64_t StoredLayout::description_bytes() const {
  return kFixedBytes + meta.tokens.size() * 4 + meta.impact.size() * kImpactBytes +
         layers.size() * kExtentBytes + (has_tenant(meta) ? sizeof meta.tenant : 0) +
         name_bytes(meta.name) + context_bytes(meta) + layer_shape_bytes(meta.shape) +
         kTrailerBytes;
}

std::string encode_description(const StoredLayout& m) {
  const ChunkMeta& meta = m.meta;
  ByteWriter out;
  out.reserve(m.description_bytes());
  out.put<uint32_t>(kManifestMagic);
  out.put<uint16_t>(static_cast<uint16_t>(record_version(meta.codec)));
  out.put<uint8_t>(static_cast<uint8_t>(meta.codec));
  out.put<uint8_t>(static_cast<uint8_t>(meta.shape.dtype));
  out.bytes(meta.id.data(), meta.id.size());
  out.bytes(meta.fingerprint.data(), meta.fingerprint.size());
  out.put<uint32_t>(meta.shape.n_layers);
  out.put<uint32_t>(meta.shape.n_tokens);
  out.put<uint32_t>(meta.shape.kv_dim);
  out.put<uint32_t>(meta.shape.head_dim);
  out.put<uint32_t>(meta.n_prefix_tokens);
  out.put<int64_t>(meta.created_unix_s);
  out.put<uint32_t>(kPieceBytes);
  const std::string label = meta.name.label.value_or("");
  const std::string tags = meta.name.tags.value_or("");
  out.put<uint32_t>((meta.impact.empty() ? 0 : kHasImpact) | (has_tenant(meta) ? kHasTenant : 0) |
                    (meta.name.is_empty() ? 0 : kHasName) |
                    (meta.contexts.empty() ? 0 : kHasContexts) |
                    (meta.shape.layers.empty() ? 0 : kHasLayers) | (meta.draft ? kIsDraft : 0));
  if (!meta.name.is_empty()) {
    out.put<uint16_t>(static_cast<uint16_t>(label.size()));
    out.put<uint16_t>(static_cast<uint16_t>(tags.size()));
  }
  if (!meta.contexts.empty()) out.put<uint16_t>(static_cast<uint16_t>(meta.contexts.size()));
  put_layer_shapes(out, meta.shape);
  for (const int32_t token : meta.tokens) out.put<int32_t>(token);
  for (const LayerExtent& e : m.layers) {
    out.put<uint64_t>(e.offset);
    out.put<uint64_t>(e.length);
    out.put<uint64_t>(e.checksum);
  }
  put_impact(out, meta.impact);
  if (has_tenant(meta)) out.bytes(meta.tenant.data(), meta.tenant.size());
  out.bytes(label.data(), label.size());
  out.bytes(tags.data(), tags.size());
  for (const Sha256& context : meta.contexts) out.bytes(context.data(), context.size());
  return with_checksum(std::move(out));
}

Result<StoredLayout> decode_description(std::span<const std::byte> bytes, const Sha256& id) {
  if (!checksum_holds(bytes)) return corrupt(id, "its checksum does not match");
  // A manifest with a correct checksum may still be hostile or of another build: check every field.
  ByteReader in(bytes.first(bytes.size() - kTrailerBytes));
  if (in.get<uint32_t>() != kManifestMagic) return corrupt(id, "its magic number is wrong");
  const auto version = in.get<uint16_t>();
  const auto codec = in.get<uint8_t>();
  const auto dtype = in.get<uint8_t>();
  if (version < kOldestFormatVersion || version > kStoreFormatVersion || codec >= kCodecs) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "chunk %s is of record version %u and codec %u; this build reads versions %u "
                      "to %u and codecs 0 to %u: use the build that wrote it, or remove the chunk",
                      to_hex(id).c_str(), version, codec, kOldestFormatVersion, kStoreFormatVersion,
                      kCodecs - 1);
  }
  if (version != record_version(static_cast<Codec>(codec))) {
    return corrupt(id, "its version is not that of its codec");
  }
  StoredLayout m;
  ChunkMeta& meta = m.meta;
  meta.codec = static_cast<Codec>(codec);
  in.bytes(meta.id.data(), meta.id.size());
  in.bytes(meta.fingerprint.data(), meta.fingerprint.size());
  meta.shape.n_layers = in.get<uint32_t>();
  meta.shape.n_tokens = in.get<uint32_t>();
  meta.shape.kv_dim = in.get<uint32_t>();
  meta.shape.head_dim = in.get<uint32_t>();
  meta.shape.dtype = static_cast<DType>(dtype);
  meta.n_prefix_tokens = in.get<uint32_t>();
  meta.created_unix_s = in.get<int64_t>();
  const auto piece_bytes = in.get<uint32_t>();
  const auto flags = in.get<uint32_t>();
  if (!in.ok()) return corrupt(id, "it is too short");
  if (meta.id != id) return corrupt(id, "it describes another chunk");
  // The layers' own shapes follow, and must fit too.
  if (!shape_is_sane(meta.shape)) return corrupt(id, "its shape is impossible");
  if (piece_bytes != kPieceBytes || (flags & ~kKnownFlags) != 0) {
    return corrupt(id, "its flags are unknown");
  }
  // Checked before anything is allocated by these counts.
  const uint64_t per_token = (flags & kHasImpact) != 0 ? 12 : 4;
  const size_t label_bytes = (flags & kHasName) != 0 ? in.get<uint16_t>() : 0;
  const size_t tags_bytes = (flags & kHasName) != 0 ? in.get<uint16_t>() : 0;
  const size_t n_contexts = (flags & kHasContexts) != 0 ? in.get<uint16_t>() : 0;
  if (n_contexts > kMostContexts || ((flags & kHasContexts) != 0 && n_contexts == 0)) {
    return corrupt(id, "its number of context passages is impossible");
  }
  meta.draft = (flags & kIsDraft) != 0;
  if (meta.draft && n_contexts == 0) return corrupt(id, "it is a draft without context passages");
  if ((flags & kHasLayers) != 0 && !get_layer_shapes(in, meta.shape)) {
    return corrupt(id, "the shapes of its layers are impossible");
  }
  const uint64_t tenant_bytes = (flags & kHasTenant) != 0 ? sizeof meta.tenant : 0;
  if (in.remaining() != uint64_t{meta.shape.n_tokens} * per_token +
                            uint64_t{meta.shape.n_layers} * kExtentBytes + tenant_bytes +
                            label_bytes + tags_bytes + n_contexts * sizeof(Sha256)) {
    return corrupt(id, "its length does not fit its shape");
  }
  meta.tokens.resize(meta.shape.n_tokens);
  for (int32_t& token : meta.tokens) token = in.get<int32_t>();
  m.layers.resize(meta.shape.n_layers);
  uint64_t end = 0;
  for (uint32_t layer = 0; layer < meta.shape.n_layers; ++layer) {
    LayerExtent& e = m.layers[layer];
    e.offset = in.get<uint64_t>();
    e.length = in.get<uint64_t>();
    e.checksum = in.get<uint64_t>();
    // One after the other, each as long as its codec may make a layer of this shape.
    if (e.offset != end || !layer_length_is_possible(meta.codec, meta.shape, layer, e.length)) {
      return corrupt(id, "its layers do not fit its shape");
    }
    end += e.length;
  }
  meta.stored_bytes = end;
  if ((flags & kHasImpact) != 0 && !get_impact(in, meta.shape.n_tokens, meta.impact)) {
    return corrupt(id, "the attention of a row is out of range");
  }
  if (tenant_bytes != 0) in.bytes(meta.tenant.data(), meta.tenant.size());
  if ((flags & kHasName) != 0) {
    in.bytes(meta.name.label.emplace(label_bytes, '\0').data(), label_bytes);
    in.bytes(meta.name.tags.emplace(tags_bytes, '\0').data(), tags_bytes);
    if (meta.name.is_empty() || !is_sound(meta.name))
      return corrupt(id, "its label or tags are invalid");
  }
  meta.contexts.resize(n_contexts);
  for (Sha256& context : meta.contexts) in.bytes(context.data(), context.size());
  if (!in.ok()) return corrupt(id, "it is too short");
  return m;
}

}  // namespace blend
