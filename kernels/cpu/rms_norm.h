// RMSNorm (Zhang & Sennrich 2019).
#pragma once

#include <cstddef>

namespace blend::kernels {

// out = x / sqrt(mean(x^2) + eps) * weight; x, weight, out: [d]; out may be x.
void rms_norm(const float* x, const float* weight, float eps, size_t d, float* out);
void rms_norm_ref(const float* x, const float* weight, float eps, size_t d, float* out);

}  // namespace blend::kernels
