// Codec zstd: lossless. The byte of each number that holds its exponent goes through zstd, the rest
// is kept unchanged: it is noise, and a compressor would only spend time on it.
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/wire.h"
#include "cpu/plane_split.h"
#include "store/codec/codec.h"

namespace blend {

void CodecScratch::Free::operator()(ZSTD_CCtx_s* c) const { ZSTD_freeCCtx(c); }
void CodecScratch::Free::operator()(ZSTD_DCtx_s* d) const { ZSTD_freeDCtx(d); }

ZSTD_CCtx_s* CodecScratch::compressor() {
  if (compressor_ == nullptr) {
    compressor_.reset(ZSTD_createCCtx());
    if (compressor_ == nullptr) throw std::bad_alloc();
    // XXH3 guards the layer already.
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_compressionLevel, 1);
    // Exponents rarely repeat except by chance, and chance matches save next to nothing and slow
    // the decoder. A minimum match of seven bytes and a table of 1,024 entries skip those and find
    // rows that are really the same. A window of 64 KiB gives each half of a block codes of its
    // own.
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_strategy, ZSTD_fast);
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_minMatch, 7);
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_hashLog, 10);
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_windowLog, 16);
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_checksumFlag, 0);
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_contentSizeFlag, 0);
  }
  return compressor_.get();
}

ZSTD_DCtx_s* CodecScratch::decompressor() {
  if (decompressor_ == nullptr) decompressor_.reset(ZSTD_createDCtx());
  if (decompressor_ == nullptr) throw std::bad_alloc();
  return decompressor_.get();
}

namespace {

// Elements that are compressed together: one block of zstd's, whose decoded bytes stay in the L2
// cache until they are merged.
constexpr size_t kBlock = 128 << 10;
constexpr uint32_t kRaw = 1u << 31;  // the high bytes of the block are stored as they are
constexpr size_t kBlockHeader = 4;

class ZstdCodec final : public PlaneCodec {
 public:
  uint64_t least_bytes(const PlaneShape& shape) const override {
    return rest_bytes(shape, shape.elements()) + n_blocks(shape) * (kBlockHeader + 1);
  }
  uint64_t most_bytes(const PlaneShape& shape) const override {
    return shape.bytes() + n_blocks(shape) * kBlockHeader;
  }

  Result<size_t> encode(PlaneKind, const PlaneShape& shape, const std::byte* rows, std::byte* out,
                        CodecScratch& scratch, const EncodeOptions&) const override {
    const size_t n = shape.elements();
    uint8_t* high = scratch.bytes(std::min(n, kBlock));
    auto* to = reinterpret_cast<uint8_t*>(out);
    for (size_t at = 0; at < n; at += kBlock) {
      const size_t count = std::min(kBlock, n - at);
      const size_t rest = rest_bytes(shape, count);
      // The rest is written after the space that the high bytes may need, then moved up.
      uint8_t* tail = to + kBlockHeader + count;
      kernels::split_planes(rows + at * shape.element_bytes(), shape.dtype, count, high, tail);
      size_t packed = ZSTD_compress2(scratch.compressor(), to + kBlockHeader, count, high, count);
      auto header = static_cast<uint32_t>(packed);
      if (ZSTD_isError(packed) != 0 || packed >= count) {  // it did not fit: not worth it
        std::memcpy(to + kBlockHeader, high, count);
        packed = count;
        header = kRaw | static_cast<uint32_t>(count);
      }
      for (size_t i = 0; i < kBlockHeader; ++i) to[i] = static_cast<uint8_t>(header >> (8 * i));
      std::memmove(to + kBlockHeader + packed, tail, rest);
      to += kBlockHeader + packed + rest;
    }
    return static_cast<size_t>(to - reinterpret_cast<uint8_t*>(out));
  }

  Result<size_t> decode(PlaneKind, const PlaneShape& shape, std::span<const std::byte> in,
                        std::byte* rows, CodecScratch& scratch) const override {
    const size_t n = shape.elements();
    uint8_t* high = scratch.bytes(std::min(n, kBlock));
    size_t used = 0;
    for (size_t at = 0; at < n; at += kBlock) {
      const size_t count = std::min(kBlock, n - at);
      const size_t rest = rest_bytes(shape, count);
      const std::span<const std::byte> block = in.subspan(used);
      const auto header = ByteReader(block).get<uint32_t>();
      const size_t packed = header & ~kRaw;
      if (block.size() < kBlockHeader || packed > block.size() - kBlockHeader ||
          rest > block.size() - kBlockHeader - packed) {
        return corrupt_layer("a compressed block ends too soon");
      }
      const auto* from = reinterpret_cast<const uint8_t*>(block.data()) + kBlockHeader;
      const uint8_t* exponents = high;
      if ((header & kRaw) != 0) {
        if (packed != count) return corrupt_layer("a compressed block has the wrong length");
        exponents = from;
      } else if (ZSTD_decompressDCtx(scratch.decompressor(), high, count, from, packed) != count) {
        return corrupt_layer("a compressed block is damaged");
      }
      kernels::merge_planes(exponents, from + packed, shape.dtype, count,
                            rows + at * shape.element_bytes());
      used += kBlockHeader + packed + rest;
    }
    return used;
  }

 private:
  static size_t rest_bytes(const PlaneShape& shape, size_t n) {
    return n * (shape.element_bytes() - 1);
  }
  static size_t n_blocks(const PlaneShape& shape) {
    return (shape.elements() + kBlock - 1) / kBlock;
  }
};

}  // namespace

const PlaneCodec& zstd_codec() {
  static const ZstdCodec kCodec{};
  return kCodec;
}

}  // namespace blend
