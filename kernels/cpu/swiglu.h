// SwiGLU and GeGLU (Shazeer 2020), and gpt-oss's form of the first: the feed-forward layer's gate.
#pragma once

#include <cstddef>

namespace blend::kernels {

// out = gate / (1 + exp(-gate)) * up; all [n]; out may be gate or up.
void swiglu(const float* gate, const float* up, size_t n, float* out);
void swiglu_ref(const float* gate, const float* up, size_t n, float* out);

// out = max(gate, 0) * up.
void reglu(const float* gate, const float* up, size_t n, float* out);
void reglu_ref(const float* gate, const float* up, size_t n, float* out);

// out = gelu(gate) * up, gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
void geglu(const float* gate, const float* up, size_t n, float* out);
void geglu_ref(const float* gate, const float* up, size_t n, float* out);

// out = gate / (1 + exp(-kGateGain gate)) * (up + 1), gate at most kGateLimit, and up between it
// and its negative.
inline constexpr float kGateGain = 1.702f;
inline constexpr float kGateLimit = 7.0f;
void clamped_swiglu(const float* gate, const float* up, size_t n, float* out);
void clamped_swiglu_ref(const float* gate, const float* up, size_t n, float* out);

// out = up / (1 + exp(-gate)); all [n]; out may be gate or up.
void sigmoid_gate(const float* gate, const float* up, size_t n, float* out);
void sigmoid_gate_ref(const float* gate, const float* up, size_t n, float* out);

}  // namespace blend::kernels
