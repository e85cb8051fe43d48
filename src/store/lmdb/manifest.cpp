#include "store/lmdb/manifest.h"

#include <algorithm>

#include "base/seal.h"
#include "base/wire.h"
#include "store/lmdb/page_format.h"
#include "store/row_impact.h"

namespace blend {
namespace {

constexpr uint32_t kManifestMagic = 0x4d4b4c42;  // "BLKM"
constexpr char kFormatMagic[8] = {'B', 'L', 'E', 'N', 'D', 'K', 'V', '\n'};
constexpr size_t kFixedBytes = 4 + 2 + 1 + 1 + 32 + 32 + 4 * 5 + 8 + 4 + 4;
constexpr size_t kExtentBytes = 3 * 8;
// Flags: what follows the layers.
constexpr uint32_t kHasImpact = 1;  // two floats a token
constexpr uint32_t kHasTenant = 2;  // the tenant, where it is not the empty one

bool has_tenant(const ChunkMeta& meta) { return meta.tenant != TenantTag{}; }

Status corrupt(const Sha256& id, const char* what) {
  return make_error(BLEND_E_CORRUPT, "the description of chunk %s is damaged: %s",
                    to_hex(id).c_str(), what);
}

// What a value takes, as if in pages of 4 KiB, whatever the file has: the sums are kept in the
// file, and are the same wherever it is opened.
constexpr uint64_t kCountedPage = 4096;
constexpr uint64_t counted_bytes(uint64_t value_bytes) {
  return page_format::overflow_pages(value_bytes, kCountedPage) * kCountedPage;
}

}  // namespace

uint64_t Manifest::footprint() const {
  const uint64_t stream = stream_bytes();
  const uint64_t manifest_bytes = kFixedBytes + meta.tokens.size() * 4 +
                                  meta.impact.size() * kImpactBytes + layers.size() * kExtentBytes +
                                  (has_tenant(meta) ? sizeof meta.tenant : 0) + kSealBytes;
  return stream / kPieceBytes * counted_bytes(kPieceBytes) +
         (stream % kPieceBytes != 0 ? counted_bytes(stream % kPieceBytes) : 0) +
         counted_bytes(manifest_bytes);
}

uint64_t Manifest::version() const {
  std::vector<uint64_t> sums;
  sums.reserve(layers.size() + 1);
  for (const LayerExtent& e : layers) sums.push_back(e.checksum);
  sums.push_back(static_cast<uint64_t>(meta.shape.dtype));
  return checksum64(sums.data(), sums.size() * sizeof(uint64_t));
}

Result<EncodedChunk> encode_chunk(const ChunkRecord& record, Codec codec) {
  const ChunkShape& shape = record.meta.shape;
  EncodedChunk out;
  Manifest& m = out.manifest;
  m.meta = record.meta;
  m.meta.codec = codec;
  if (codec != Codec::none) {
    BLEND_ASSIGN(out.encoded,
                 AlignedBuffer::allocate(shape.n_layers * longest_layer(codec, shape)));
  }
  out.stream = codec == Codec::none ? record.data.data() : out.encoded.data();
  m.layers.reserve(shape.n_layers);
  CodecScratch scratch;
  uint64_t at = 0;
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    uint64_t length = shape.layer_bytes();
    if (codec != Codec::none) {
      auto encoded = encode_layer(codec, shape, record.k(layer), out.encoded.data() + at, scratch);
      if (!encoded.is_ok()) {
        return encoded.status().with_context("layer " + std::to_string(layer));
      }
      length = *encoded;
    }
    m.layers.push_back({at, length, checksum64(out.stream + at, length)});
    at += length;
  }
  m.meta.stored_bytes = at;
  return out;
}

std::string encode_manifest(const Manifest& m) {
  const ChunkMeta& meta = m.meta;
  ByteWriter out;
  out.reserve(kFixedBytes + meta.tokens.size() * 4 + meta.impact.size() * kImpactBytes +
              m.layers.size() * kExtentBytes + sizeof meta.tenant + kSealBytes);
  out.put<uint32_t>(kManifestMagic);
  out.put<uint16_t>(kStoreFormatVersion);
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
  out.put<uint32_t>((meta.impact.empty() ? 0 : kHasImpact) | (has_tenant(meta) ? kHasTenant : 0));
  for (const int32_t token : meta.tokens) out.put<int32_t>(token);
  for (const LayerExtent& e : m.layers) {
    out.put<uint64_t>(e.offset);
    out.put<uint64_t>(e.length);
    out.put<uint64_t>(e.checksum);
  }
  put_impact(out, meta.impact);
  if (has_tenant(meta)) out.bytes(meta.tenant.data(), meta.tenant.size());
  return seal(std::move(out));
}

Result<Manifest> decode_manifest(std::span<const std::byte> bytes, const Sha256& id) {
  if (!sealed(bytes)) return corrupt(id, "its checksum does not match");
  // A manifest with a right checksum may still be hostile or of another build: check every field.
  ByteReader in(bytes.first(bytes.size() - kSealBytes));
  if (in.get<uint32_t>() != kManifestMagic) return corrupt(id, "its magic number is wrong");
  const auto version = in.get<uint16_t>();
  const auto codec = in.get<uint8_t>();
  const auto dtype = in.get<uint8_t>();
  if (version != kStoreFormatVersion || codec >= kCodecs) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "chunk %s is of record version %u and codec %u; this build reads version %u "
                      "and codecs 0 to %u: use the build that wrote it, or remove the chunk",
                      to_hex(id).c_str(), version, codec, kStoreFormatVersion, kCodecs - 1);
  }
  Manifest m;
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
  if (!shape_is_sane(meta.shape)) return corrupt(id, "its shape is impossible");
  if (piece_bytes != kPieceBytes || (flags & ~(kHasImpact | kHasTenant)) != 0) {
    return corrupt(id, "its flags are unknown");
  }
  // Compared before anything is allocated by these counts.
  const uint64_t per_token = (flags & kHasImpact) != 0 ? 12 : 4;
  const uint64_t tenant_bytes = (flags & kHasTenant) != 0 ? sizeof meta.tenant : 0;
  if (in.remaining() != uint64_t{meta.shape.n_tokens} * per_token +
                            uint64_t{meta.shape.n_layers} * kExtentBytes + tenant_bytes) {
    return corrupt(id, "its length does not fit its shape");
  }
  meta.tokens.resize(meta.shape.n_tokens);
  for (int32_t& token : meta.tokens) token = in.get<int32_t>();
  m.layers.resize(meta.shape.n_layers);
  uint64_t end = 0;
  for (LayerExtent& e : m.layers) {
    e.offset = in.get<uint64_t>();
    e.length = in.get<uint64_t>();
    e.checksum = in.get<uint64_t>();
    // One after the other, each as long as its codec may make a layer of this shape.
    if (e.offset != end || !layer_length_is_possible(meta.codec, meta.shape, e.length)) {
      return corrupt(id, "its layers do not fit its shape");
    }
    end += e.length;
  }
  meta.stored_bytes = end;
  if ((flags & kHasImpact) != 0 && !get_impact(in, meta.shape.n_tokens, meta.impact)) {
    return corrupt(id, "the attention of a row is none");
  }
  if (tenant_bytes != 0) in.bytes(meta.tenant.data(), meta.tenant.size());
  if (!in.ok()) return corrupt(id, "it is too short");
  return m;
}

std::string encode_format() {
  ByteWriter out;
  out.bytes(kFormatMagic, sizeof kFormatMagic);
  out.put<uint32_t>(kStoreFormatVersion);
  out.put<uint32_t>(kPieceBytes);
  return seal(std::move(out));
}

Status check_format(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  char magic[sizeof kFormatMagic] = {};
  in.bytes(magic, sizeof magic);
  const auto version = in.get<uint32_t>();
  if (!in.ok() || !std::equal(magic, magic + sizeof magic, kFormatMagic)) {
    return {BLEND_E_FORMAT, "its format record is not one of libblend"};
  }
  // The checksum comes before the version, so that a flipped bit is not taken for a new release.
  if (!sealed(bytes)) return {BLEND_E_CORRUPT, "its format record fails its checksum"};
  if (version != kStoreFormatVersion) {
    return make_error(BLEND_E_MISMATCH,
                      "it has store format version %u and this build reads version %u: use the "
                      "release that wrote it, or another directory",
                      version, kStoreFormatVersion);
  }
  if (in.get<uint32_t>() != kPieceBytes) {
    return {BLEND_E_MISMATCH, "it is cut into pieces of another size"};
  }
  return Status::ok();
}

void StoreCounters::add(const Manifest& m) {
  n_chunks += 1;
  n_tokens += m.meta.shape.n_tokens;
  kv_bytes += m.meta.shape.total_bytes();
  footprint += m.footprint();
  CodecStat& c = codecs[static_cast<size_t>(m.meta.codec)];
  c.n_chunks += 1;
  c.bytes += m.meta.shape.total_bytes();
  c.stored_bytes += m.stream_bytes();
}

void StoreCounters::subtract(const Manifest& m) {
  // Counters that were forged, or are of another time, must not wrap: nothing would fit any more.
  const auto less = [](uint64_t& n, uint64_t by) { n -= std::min(n, by); };
  less(n_chunks, 1);
  less(n_tokens, m.meta.shape.n_tokens);
  less(kv_bytes, m.meta.shape.total_bytes());
  less(footprint, m.footprint());
  CodecStat& c = codecs[static_cast<size_t>(m.meta.codec)];
  less(c.n_chunks, 1);
  less(c.bytes, m.meta.shape.total_bytes());
  less(c.stored_bytes, m.stream_bytes());
}

std::string encode_counters(const StoreCounters& c) {
  ByteWriter out;
  for (const uint64_t n : {c.n_chunks, c.n_tokens, c.kv_bytes, c.footprint}) out.put<uint64_t>(n);
  for (const CodecStat& s : c.codecs) {
    for (const uint64_t n : {s.n_chunks, s.bytes, s.stored_bytes}) out.put<uint64_t>(n);
  }
  return seal(std::move(out));
}

Result<StoreCounters> decode_counters(std::span<const std::byte> bytes) {
  if (bytes.size() != (4 + 3 * kCodecs) * 8 + kSealBytes || !sealed(bytes)) {
    return Status{BLEND_E_CORRUPT, "the store's counters fail their checksum"};
  }
  ByteReader in(bytes);
  StoreCounters c;
  for (uint64_t* n : {&c.n_chunks, &c.n_tokens, &c.kv_bytes, &c.footprint}) *n = in.get<uint64_t>();
  for (CodecStat& s : c.codecs) {
    for (uint64_t* n : {&s.n_chunks, &s.bytes, &s.stored_bytes}) *n = in.get<uint64_t>();
  }
  return c;
}

}  // namespace blend
