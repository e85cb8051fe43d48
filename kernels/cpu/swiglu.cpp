#include "cpu/swiglu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

#include "cpu/exp-inl.h"

#ifndef BLEND_KERNELS_SWIGLU_ONCE  // shared by all targets
#define BLEND_KERNELS_SWIGLU_ONCE
namespace blend::kernels {

enum class Gate { silu, gelu, clamped, sigmoid };

}  // namespace blend::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace blend::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// silu(g) = g * sigmoid(g), and gelu by tanh is g * sigmoid(2 z), z = sqrt(2 / pi) (g + 0.044715
// g^3), for 0.5 (1 + tanh(z)) = sigmoid(2 z).
template <Gate kGate, class D>
HWY_INLINE hn::Vec<D> gated(D d, hn::Vec<D> g, hn::Vec<D> u) {
  if constexpr (kGate == Gate::clamped) {  // a NaN is above nothing, and stays
    const auto most = hn::Set(d, kGateLimit), least = hn::Set(d, -kGateLimit);
    g = hn::IfThenElse(hn::Gt(g, most), most, g);
    u = hn::IfThenElse(hn::Gt(u, most), most, u);
    u = hn::Add(hn::IfThenElse(hn::Lt(u, least), least, u), hn::Set(d, 1.0f));
  }
  auto z = g;
  if constexpr (kGate == Gate::clamped) z = hn::Mul(g, hn::Set(d, kGateGain));
  if constexpr (kGate == Gate::gelu) {
    const auto cubic = hn::MulAdd(hn::Mul(g, g), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
    z = hn::Mul(hn::Mul(g, hn::Set(d, 1.5957691216f)), cubic);
  }
  // Beyond these the sigmoid is 0 or 1 to f32's resolution; a NaN stays one by the factor g.
  const auto x = hn::Max(hn::Min(hn::Neg(z), hn::Set(d, 87.0f)), hn::Set(d, -86.0f));
  const auto e = exp_between(d, x);
  const auto one = hn::Set(d, 1.0f);
  // min and max may take the number for a NaN; this factor is a NaN where g is.
  const auto factor = kGate == Gate::sigmoid ? hn::Add(one, hn::Sub(g, g)) : g;
  return hn::Mul(hn::Div(factor, hn::Add(one, e)), u);
}

template <Gate kGate>
void gate_row(const float* gate, const float* up, size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(gated<kGate>(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
  }
  const hn::CappedTag<float, 1> d1;
  for (; i < n; ++i) {
    hn::StoreU(gated<kGate>(d1, hn::LoadU(d1, gate + i), hn::LoadU(d1, up + i)), d1, out + i);
  }
}

void Swiglu(const float* gate, const float* up, size_t n, float* out) {
  gate_row<Gate::silu>(gate, up, n, out);
}

// A NaN of the gate may become 0 here; where both are the same row, it is kept as up's.
void Reglu(const float* gate, const float* up, size_t n, float* out) {
  const hn::CappedTag<float, 16> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto g = hn::Max(hn::LoadU(d, gate + i), hn::Zero(d));
    hn::StoreU(hn::Mul(g, hn::LoadU(d, up + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = std::max(gate[i], 0.0f) * up[i];
}

void Geglu(const float* gate, const float* up, size_t n, float* out) {
  gate_row<Gate::gelu>(gate, up, n, out);
}

void ClampedSwiglu(const float* gate, const float* up, size_t n, float* out) {
  gate_row<Gate::clamped>(gate, up, n, out);
}

void SigmoidGate(const float* gate, const float* up, size_t n, float* out) {
  gate_row<Gate::sigmoid>(gate, up, n, out);
}

}  // namespace blend::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::kernels {

HWY_EXPORT(Swiglu);
HWY_EXPORT(Reglu);
HWY_EXPORT(Geglu);
HWY_EXPORT(ClampedSwiglu);
HWY_EXPORT(SigmoidGate);

void swiglu(const float* gate, const float* up, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Swiglu)(gate, up, n, out);
}

void swiglu_ref(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(gate[i]);
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]));
  }
}

void reglu(const float* gate, const float* up, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Reglu)(gate, up, n, out);
}

void reglu_ref(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = std::max(gate[i], 0.0f) * up[i];
}

void geglu(const float* gate, const float* up, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Geglu)(gate, up, n, out);
}

void geglu_ref(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(gate[i]);
    const double z = std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g);
    out[i] = static_cast<float>(0.5 * g * (1.0 + std::tanh(z)) * static_cast<double>(up[i]));
  }
}

void clamped_swiglu(const float* gate, const float* up, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(ClampedSwiglu)(gate, up, n, out);
}

void clamped_swiglu_ref(const float* gate, const float* up, size_t n, float* out) {
  const auto limit = static_cast<double>(kGateLimit), gain = static_cast<double>(kGateGain);
  for (size_t i = 0; i < n; ++i) {
    const double g = std::min(static_cast<double>(gate[i]), limit);
    const double u = std::clamp(static_cast<double>(up[i]), -limit, limit);
    out[i] = static_cast<float>(g / (1.0 + std::exp(-gain * g)) * (u + 1.0));
  }
}

void sigmoid_gate(const float* gate, const float* up, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SigmoidGate)(gate, up, n, out);
}

void sigmoid_gate_ref(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(gate[i]);
    out[i] = static_cast<float>(static_cast<double>(up[i]) / (1.0 + std::exp(-g)));
  }
}

}  // namespace blend::kernels
#endif  // HWY_ONCE
