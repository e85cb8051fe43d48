// Activations as 8-bit rows for integer products.
//
// A row of x has one scale and one zero point, x ~ scale * (q - zero) with q in 0 .. 255; a row of
// W has one scale, w ~ step * p with p in -127 .. 127. So
//   sum_k x w ~ scale * step * (sum_k q p - zero * sum_k p),
// whose sums are integers and exact (Jacob et al., CVPR 2018, section 2.3, eq. 7).
#pragma once

#include <cstddef>
#include <cstdint>

namespace blend::kernels {

struct Int8Row {
  float scale = 0;   // NaN where the row has a NaN or an infinity, so that the product has one too
  int32_t zero = 0;  // the q of 0: zeros stay zeros
};

// x, q: [n]. A row's q depends on that row alone, so that one row and many give the same product.
// Thread-safe, as all kernels are.
Int8Row quantize_row(const float* x, size_t n, uint8_t* q);

// The scalar reference.
Int8Row quantize_row_ref(const float* x, size_t n, uint8_t* q);

}  // namespace blend::kernels
