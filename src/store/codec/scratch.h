// CodecScratch: scratch memory of codecs, kept from layer to layer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/rans_rows.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace blend {

// Used by one thread at a time. Grows to the need of one plane: a few rows, or a block's exponents
// or codes.
// Growing may throw bad_alloc.
class CodecScratch {
 public:
  CodecScratch() = default;
  CodecScratch(const CodecScratch&) = delete;
  CodecScratch& operator=(const CodecScratch&) = delete;

  // Uninitialised room for n numbers; `which` of several arrays that are in use at once.
  float* floats(size_t which, size_t n) { return grow(floats_, which, n); }
  int32_t* ints(size_t which, size_t n) { return grow(ints_, which, n); }
  double* doubles(size_t n) {
    if (doubles_.size() < n) doubles_.resize(n);
    return doubles_.data();
  }
  uint8_t* bytes(size_t n) {
    if (bytes_.size() < n) bytes_.resize(n);
    return bytes_.data();
  }
  // Lists that keep their capacity.
  std::vector<kernels::RansCode>& codes() { return codes_; }
  std::vector<uint16_t>& halves(size_t which) { return halves_[which]; }
  // Made when first asked for; bad_alloc without memory.
  ZSTD_CCtx_s* compressor();
  ZSTD_DCtx_s* decompressor();

 private:
  template <typename T>
  static T* grow(std::vector<std::vector<T>>& all, size_t which, size_t n) {
    if (all.size() <= which) all.resize(which + 1);
    if (all[which].size() < n) all[which].resize(n);
    return all[which].data();
  }

  struct Free {
    void operator()(ZSTD_CCtx_s* c) const;
    void operator()(ZSTD_DCtx_s* d) const;
  };
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<int32_t>> ints_;
  std::vector<double> doubles_;
  std::vector<uint8_t> bytes_;
  std::vector<kernels::RansCode> codes_;
  std::array<std::vector<uint16_t>, 2> halves_;
  std::unique_ptr<ZSTD_CCtx_s, Free> compressor_;
  std::unique_ptr<ZSTD_DCtx_s, Free> decompressor_;
};

}  // namespace blend
