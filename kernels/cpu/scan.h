// Gated DeltaNet (Yang et al. 2025) and Mamba-2 (Dao & Gu 2024): the short convolution before them,
// and the scan over rows.
#pragma once

#include <cstddef>

namespace blend::kernels {

// out[e] = silu(bias[e] + sum over j < n_taps of taps[j * stride + e] * x[j * stride + e]), e < n.
// bias may be null.
void conv_silu(const float* x, const float* taps, const float* bias, size_t stride, size_t n_taps,
               size_t n, float* out);
void conv_silu_ref(const float* x, const float* taps, const float* bias, size_t stride,
                   size_t n_taps, size_t n, float* out);

// x *= scale / sqrt(sum of squares + eps); x: [n].
void to_length(float* x, size_t n, float eps, float scale);
void to_length_ref(float* x, size_t n, float eps, float scale);

// A state's columns evolve by themselves, so they are worked on in tiles that stay in the
// first-level cache: [k_dim][kScanTile].
inline constexpr size_t kScanTile = 16;

// Rows of one head and tile. For each row t: S *= decay; S += k (beta (v - k S)); out = q S. Of a
// Mamba-2, S += k (beta v).
struct ScanRows {
  bool corrects = true;  // whether k S is subtracted
  size_t n = 0, k_dim = 0;
  size_t columns = kScanTile;              // of the tile that are used; the others stay
  const float *q = nullptr, *k = nullptr;  // [n] of qk_stride; q only where out is
  size_t qk_stride = 0;
  const float* v = nullptr;  // [n] of v_stride, [columns]
  size_t v_stride = 0;
  const float *decay = nullptr, *beta = nullptr;  // [n]
  float* const* out = nullptr;                    // [n], each [out_at + columns]; null: not wanted
  size_t out_at = 0;
};
// state: 64-byte aligned. A row's bits do not depend on where a call begins or ends.
void scan_rows(const ScanRows& rows, float* state);
void scan_rows_ref(const ScanRows& rows, float* state);

}  // namespace blend::kernels
