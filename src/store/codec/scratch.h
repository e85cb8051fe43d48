// CodecScratch: memory that codecs work in, kept from layer to layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace blend {

// Used by one thread at a time. Grows to what one plane needs: a few rows, or a block's exponents.
// Growing may throw bad_alloc.
class CodecScratch {
 public:
  CodecScratch() = default;
  CodecScratch(const CodecScratch&) = delete;
  CodecScratch& operator=(const CodecScratch&) = delete;

  // Uninitialised room for n numbers; `which` of several arrays that are in use at once.
  float* floats(size_t which, size_t n) { return grow(floats_, which, n); }
  uint8_t* bytes(size_t n) {
    if (bytes_.size() < n) bytes_.resize(n);
    return bytes_.data();
  }
  // Made when first asked for; bad_alloc without memory.
  ZSTD_CCtx_s* compressor();
  ZSTD_DCtx_s* decompressor();

 private:
  static float* grow(std::vector<std::vector<float>>& all, size_t which, size_t n) {
    if (all.size() <= which) all.resize(which + 1);
    if (all[which].size() < n) all[which].resize(n);
    return all[which].data();
  }

  struct Free {
    void operator()(ZSTD_CCtx_s* c) const;
    void operator()(ZSTD_DCtx_s* d) const;
  };
  std::vector<std::vector<float>> floats_;
  std::vector<uint8_t> bytes_;
  std::unique_ptr<ZSTD_CCtx_s, Free> compressor_;
  std::unique_ptr<ZSTD_DCtx_s, Free> decompressor_;
};

}  // namespace blend
