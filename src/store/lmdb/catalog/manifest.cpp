#include "store/lmdb/catalog/manifest.h"

#include <algorithm>

#include "base/checksum_trailer.h"
#include "base/wire.h"
#include "store/codec/row_shifts.h"
#include "store/lmdb/page_format.h"

namespace blend {
namespace {

constexpr char kFormatMagic[8] = {'B', 'L', 'E', 'N', 'D', 'K', 'V', '\n'};

// Size of a value in pages of 4 KiB, whatever the file has: the sums are stored in the file, and
// must not depend on the machine that opens it.
constexpr uint64_t kCountedPage = 4096;
constexpr uint64_t counted_bytes(uint64_t value_bytes) {
  return page_format::overflow_pages(value_bytes, kCountedPage) * kCountedPage;
}

constexpr size_t kOldestCodecs = 4;  // in the oldest version's counters
constexpr size_t counters_bytes(size_t n_codecs) { return (4 + 3 * n_codecs) * 8 + kTrailerBytes; }

}  // namespace

uint64_t Manifest::footprint() const {
  const uint64_t stream = stream_bytes();
  return stream / kPieceBytes * counted_bytes(kPieceBytes) +
         (stream % kPieceBytes != 0 ? counted_bytes(stream % kPieceBytes) : 0) +
         counted_bytes(description_bytes());
}

Result<EncodedChunk> encode_chunk(const ChunkRecord& record, Codec codec, double step,
                                  std::span<const float> layer_steps) {
  const ChunkShape& shape = record.meta.shape;
  EncodedChunk out;
  Manifest& m = out.manifest;
  m.meta = record.meta;
  m.meta.codec = codec;
  if (codec != Codec::none) {
    uint64_t longest = 0;
    for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
      longest += longest_layer(codec, shape, layer);
    }
    BLEND_ASSIGN(out.encoded, AlignedBuffer::allocate(longest));
  }
  out.stream = codec == Codec::none ? record.data.data() : out.encoded.data();
  m.layers.reserve(shape.n_layers);
  CodecScratch scratch;
  std::vector<uint8_t> shifts;
  if (takes_row_shifts(codec)) shifts = row_shifts(record.meta.impact);
  EncodeOptions options{step, shifts};
  uint64_t at = 0;
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    if (layer_steps.size() == shape.n_layers) {
      options.step = step * static_cast<double>(layer_steps[layer]);
    }
    uint64_t length = shape.layer_bytes(layer);
    if (codec != Codec::none) {
      auto encoded = encode_layer(codec, shape, layer, record.k(layer), out.encoded.data() + at,
                                  scratch, options);
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

std::string encode_format(uint32_t version) {
  ByteWriter out;
  out.bytes(kFormatMagic, sizeof kFormatMagic);
  out.put<uint32_t>(version);
  out.put<uint32_t>(kPieceBytes);
  return with_checksum(std::move(out));
}

Result<uint32_t> decode_format(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  char magic[sizeof kFormatMagic] = {};
  in.bytes(magic, sizeof magic);
  const auto version = in.get<uint32_t>();
  if (!in.ok() || !std::equal(magic, magic + sizeof magic, kFormatMagic)) {
    return Status{BLEND_E_FORMAT, "its format record is not one of libblend"};
  }
  // The checksum comes before the version, so that a flipped bit is not taken for a new release.
  if (!checksum_holds(bytes))
    return Status{BLEND_E_CORRUPT, "its format record fails its checksum"};
  if (version < kOldestFormatVersion || version > kStoreFormatVersion) {
    return make_error(BLEND_E_MISMATCH,
                      "it has store format version %u and this build reads versions %u to %u: use "
                      "the release that wrote it, or another directory",
                      version, kOldestFormatVersion, kStoreFormatVersion);
  }
  if (in.get<uint32_t>() != kPieceBytes) {
    return Status{BLEND_E_MISMATCH, "it is cut into pieces of another size"};
  }
  return version;
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
  // Counters that were forged or are outdated must not wrap, or nothing would fit any more.
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

uint32_t StoreCounters::version() const {
  uint32_t version = kOldestFormatVersion;
  for (size_t i = 0; i < codecs.size(); ++i) {
    if (codecs[i] == CodecStat{}) continue;
    version = std::max(version, record_version(static_cast<Codec>(i)));
  }
  return version;
}

std::string encode_counters(const StoreCounters& c) {
  const size_t n = c.version() == kOldestFormatVersion ? kOldestCodecs : kCodecs;
  ByteWriter out;
  for (const uint64_t x : {c.n_chunks, c.n_tokens, c.kv_bytes, c.footprint}) out.put<uint64_t>(x);
  for (const CodecStat& s : std::span(c.codecs).first(n)) {
    for (const uint64_t x : {s.n_chunks, s.bytes, s.stored_bytes}) out.put<uint64_t>(x);
  }
  return with_checksum(std::move(out));
}

Result<StoreCounters> decode_counters(std::span<const std::byte> bytes) {
  const size_t n = bytes.size() == counters_bytes(kOldestCodecs) ? kOldestCodecs : kCodecs;
  if (bytes.size() != counters_bytes(n) || !checksum_holds(bytes)) {
    return Status{BLEND_E_CORRUPT, "the store's counters fail their checksum"};
  }
  ByteReader in(bytes);
  StoreCounters c;
  for (uint64_t* x : {&c.n_chunks, &c.n_tokens, &c.kv_bytes, &c.footprint}) *x = in.get<uint64_t>();
  for (CodecStat& s : std::span(c.codecs).first(n)) {
    for (uint64_t* x : {&s.n_chunks, &s.bytes, &s.stored_bytes}) *x = in.get<uint64_t>();
  }
  // Exactly as encode_counters() writes them.
  if (n != kOldestCodecs && c.version() == kOldestFormatVersion) {
    return Status{BLEND_E_CORRUPT, "the store's counters have codecs that their version lacks"};
  }
  return c;
}

}  // namespace blend
