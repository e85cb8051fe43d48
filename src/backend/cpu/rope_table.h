// CpuRopeTable: cos and sin of every position, f32, from angles in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "backend/cpu/memory.h"
#include "backend/kv_cache.h"
#include "base/threads/thread_pool.h"
#include "cpu/rope.h"
#include "model/config.h"

namespace blend::cpu {

// Immutable.
class CpuRopeTable final : public RopeTable {
 public:
  static Result<std::shared_ptr<CpuRopeTable>> create(ThreadPool& pool, const RopeParams& params,
                                                      uint32_t n_positions) {
    const size_t half = params.rotary_dim / 2;
    if (!params.freq_factors.empty() && params.freq_factors.size() != half) {
      return make_error(BLEND_E_FORMAT, "RoPE has %zu frequency factors for %zu frequencies",
                        params.freq_factors.size(), half);
    }
    BLEND_ASSIGN(AlignedBuffer data, allocate_tensor(n_positions * 2 * half * sizeof(float)));
    BLEND_ASSIGN(AlignedBuffer frequencies, AlignedBuffer::allocate(half * sizeof(double)));
    double* const frequency = frequencies.as<double>();
    for (size_t i = 0; i < half; ++i) {
      frequency[i] = std::pow(
          params.theta, -2.0 * static_cast<double>(i) / static_cast<double>(params.rotary_dim));
      if (!params.freq_factors.empty()) {
        frequency[i] /= static_cast<double>(params.freq_factors[i]);
      }
      frequency[i] /= params.linear_scale;
    }
    float* const table = data.as<float>();
    pool.parallel_for(n_positions, 256, [&](size_t begin, size_t end, uint32_t) {
      for (size_t p = begin; p < end; ++p) {
        float* row = table + p * 2 * half;
        const double factor = params.attention_factor * q_growth(params, p);
        for (size_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(p) * frequency[i];
          row[i] = static_cast<float>(std::cos(angle) * factor);
          row[half + i] = static_cast<float>(std::sin(angle) * factor);
        }
      }
    });
    return std::shared_ptr<CpuRopeTable>(
        new CpuRopeTable(params, n_positions, half, std::move(data)));
  }

  uint32_t n_positions() const override { return n_positions_; }
  // The argument of rope() for n_heads heads at position pos.
  kernels::RopeRow row(uint32_t pos, size_t n_heads, size_t head_dim) const {
    const float* cos = data_.as<float>() + pos * 2 * half_;
    return {n_heads, head_dim, 2 * half_, pairs_, cos, cos + half_};
  }

 private:
  CpuRopeTable(const RopeParams& params, uint32_t n_positions, size_t half, AlignedBuffer data)
      : n_positions_(n_positions),
        half_(half),
        pairs_(params.layout == RopeLayout::half_split ? kernels::RopePairs::halves
                                                       : kernels::RopePairs::adjacent),
        data_(std::move(data)) {}

  uint32_t n_positions_;
  size_t half_;
  kernels::RopePairs pairs_;
  AlignedBuffer data_;  // [n_positions][cos: half, sin: half]
};

}  // namespace blend::cpu
