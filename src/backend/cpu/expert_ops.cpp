#include "backend/cpu/expert_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/gate.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/routing.h"
#include "backend/cpu/sizes.h"
#include "backend/cpu/weights.h"

namespace blend::cpu {
namespace {

// Sorted rows at a time, unless one expert has more.
constexpr uint32_t kMostPlaces = 1024;

// Elements of what an expert's first matrix makes of a row: gate and up, or up alone.
size_t inner_dim(const ModelConfig& config) {
  return (size_t{config.ffn_matrices()} - 1) * config.experts.d_ff;
}

uint32_t n_places(const Experts& experts, uint32_t n_rows) {
  const uint64_t all = uint64_t{n_rows} * experts.used;
  return static_cast<uint32_t>(std::min<uint64_t>(all, std::max(kMostPlaces, n_rows)));
}

// Sums that do not wait for one another; the same on every machine.
float product(const float* a, const float* b, size_t n) {
  constexpr size_t kSums = 16;
  float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (size_t j = 0; i < n; ++i, ++j) sums[j] += a[i] * b[i];
  float sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

}  // namespace

// The parts of the caller's scratch, for some number of rows.
struct CpuExpertOps::Scratch {
  uint32_t* chosen;         // [rows, used]
  float* weights;           // [rows, used]
  SortedRows sorted;        //
  Gemm::Product* products;  // [count]
  float* x;                 // [places, expert_dim]
  float* gate_up;           // [places, inner_dim]
  float* act;               // [places, d_ff]
  float* out;               // [places, expert_dim]
  uint32_t places;
  size_t bytes;

  // data: null to learn how many bytes there are.
  Scratch(const ModelConfig& config, uint32_t n_rows, std::byte* data) {
    const Experts& e = config.experts;
    bytes = 0;
    const auto take = [&](auto*& to, size_t n) {
      std::byte* const at = data == nullptr ? nullptr : data + bytes;
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(at);
      bytes += lines(n * sizeof(*to));
    };
    places = n_places(e, n_rows);
    const size_t choices = size_t{n_rows} * e.used, n = places;
    take(chosen, choices);
    take(weights, choices);
    take(sorted.first, size_t{e.count} + 1);
    take(sorted.row, choices);
    take(sorted.place, choices);
    take(products, e.count);
    take(x, n * config.expert_dim());
    take(gate_up, n * inner_dim(config));
    take(act, n * e.d_ff);
    take(out, n * config.expert_dim());
  }
};

size_t CpuExperts::bytes() const {
  size_t sum = 0;
  for (const auto& m : matrices_) sum += m->bytes();
  return sum;
}

Result<std::unique_ptr<Weight>> CpuExpertOps::load(
    std::span<const std::vector<const TensorView*>> parts, WeightForm form) {
  std::vector<std::unique_ptr<CpuMatrix>> matrices;
  for (const std::vector<const TensorView*>& of_expert : parts) {
    BLEND_ASSIGN(std::unique_ptr<CpuMatrix> matrix, load_matrix_(of_expert, form));
    matrices.push_back(std::move(matrix));
  }
  return std::unique_ptr<Weight>(new CpuExperts(std::move(matrices)));
}

size_t CpuExpertOps::scratch_bytes(const ModelConfig& config, uint32_t max_rows) const {
  return Scratch(config, max_rows, nullptr).bytes;
}

Status CpuExpertOps::weigh(const Weight& vector, Tensor by, Tensor x) {
  const auto& v = static_cast<const CpuVector&>(vector);
  if (v.size() != by.cols || by.rows != x.rows) {
    return make_error(BLEND_E_INTERNAL, "weigh: [%lld, %lld] by %lld, for %lld rows",
                      static_cast<long long>(by.rows), static_cast<long long>(by.cols),
                      static_cast<long long>(v.size()), static_cast<long long>(x.rows));
  }
  const auto d = static_cast<size_t>(by.cols), cols = static_cast<size_t>(x.cols);
  const auto* const from = static_cast<const float*>(by.data);
  auto* const to = static_cast<float*>(x.data);
  pool_.parallel_for(
      static_cast<size_t>(x.rows), row_grain(d + cols), [&](size_t i, size_t last, uint32_t) {
        for (; i < last; ++i) {
          const float weight = 1 / (1 + std::exp(-product(from + i * d, v.data(), d)));
          for (size_t c = 0; c < cols; ++c) to[i * cols + c] *= weight;
        }
      });
  return Status::ok();
}

Status CpuExpertOps::run(const ExpertLayer& layer, const ModelConfig& config, Tensor x,
                         Tensor scores, Tensor y, DeviceBuffer& scratch) {
  const Experts& experts = config.experts;
  if (scores.cols != experts.count || x.rows != y.rows || x.rows != scores.rows) {
    return make_error(BLEND_E_INTERNAL, "experts: %lld rows with scores [%lld, %lld]",
                      static_cast<long long>(x.rows), static_cast<long long>(scores.rows),
                      static_cast<long long>(scores.cols));
  }
  const auto n_rows = static_cast<uint32_t>(x.rows);
  const Scratch s(config, n_rows, static_cast<std::byte*>(scratch.data()));
  choose(layer, experts, scores, s);
  sort_by_expert(s.chosen, n_rows, experts.used, experts.count, s.sorted);
  std::memset(y.data, 0, static_cast<size_t>(y.rows * y.cols) * sizeof(float));
  for (uint32_t begin = 0; begin < experts.count;) {
    const uint32_t first = s.sorted.first[begin];
    uint32_t end = begin + 1;
    while (end < experts.count && s.sorted.first[end + 1] - first <= s.places) ++end;
    if (s.sorted.first[end] != first) {
      BLEND_RETURN_IF_ERROR(run_some(layer, config, begin, end, x, y, s));
    }
    begin = end;
  }
  return Status::ok();
}

void CpuExpertOps::choose(const ExpertLayer& layer, const Experts& experts, Tensor scores,
                          const Scratch& s) {
  const float* const bias = elements_of(layer.choice_bias);
  const float* const scale = elements_of(layer.scale);
  auto* const all = static_cast<float*>(scores.data);
  // An exponential costs as much as some elements of a copy.
  pool_.parallel_for(static_cast<size_t>(scores.rows), row_grain(size_t{16} * experts.count),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         uint32_t* const chosen = s.chosen + i * experts.used;
                         float* const weights = s.weights + i * experts.used;
                         choose_experts(experts, all + i * experts.count, bias, chosen, weights);
                         for (uint32_t j = 0; scale != nullptr && j < experts.used; ++j) {
                           weights[j] *= scale[chosen[j]];
                         }
                       }
                     });
}

Status CpuExpertOps::run_some(const ExpertLayer& layer, const ModelConfig& config, uint32_t begin,
                              uint32_t end, Tensor x, Tensor y, const Scratch& s) {
  const uint32_t used = config.experts.used;
  const size_t d = config.expert_dim(), d_ff = config.experts.d_ff, inner = inner_dim(config);
  const uint32_t first = s.sorted.first[begin], n = s.sorted.first[end] - first;
  const auto* const from = static_cast<const float*>(x.data);
  pool_.parallel_for(n, row_grain(d), [&](size_t i, size_t last, uint32_t) {
    for (; i < last; ++i) {
      std::memcpy(s.x + i * d, from + s.sorted.row[first + i] * d, d * sizeof(float));
    }
  });
  const auto multiply_all = [&](const Weight* weight, const float* in, size_t in_cols, float* out,
                                size_t out_cols) {
    const auto& matrices = static_cast<const CpuExperts&>(*weight);
    size_t n_products = 0;
    for (uint32_t e = begin; e < end; ++e) {
      const size_t at = s.sorted.first[e] - first, rows = s.sorted.first[e + 1] - first - at;
      if (rows == 0) continue;
      s.products[n_products++] = {&matrices.matrix(e), in + at * in_cols,
                                  static_cast<int64_t>(rows), out + at * out_cols, x.steps};
    }
    return multiply({s.products, n_products});
  };
  BLEND_RETURN_IF_ERROR(multiply_all(layer.gate_up, s.x, d, s.gate_up, inner));
  add_biases(layer.gate_up_bias, begin, end, s, inner, s.gate_up);
  gate(config, n, s.gate_up, s.act);
  BLEND_RETURN_IF_ERROR(multiply_all(layer.down, s.act, d_ff, s.out, d));
  add_biases(layer.down_bias, begin, end, s, d, s.out);
  // Row by row, in the order of the experts: the same sum for any number of threads.
  auto* const to = static_cast<float*>(y.data);
  pool_.parallel_for(static_cast<size_t>(y.rows), row_grain(d * std::min(used, 4u)),
                     [&](size_t row, size_t last, uint32_t) {
                       for (; row < last; ++row) {
                         for (size_t j = row * used; j < (row + 1) * used; ++j) {
                           const uint32_t place = s.sorted.place[j] - first;
                           if (place >= n) continue;
                           const float weight = s.weights[j];
                           const float* const add = s.out + place * d;
                           for (size_t c = 0; c < d; ++c) to[row * d + c] += weight * add[c];
                         }
                       }
                     });
  return Status::ok();
}

Status CpuExpertOps::multiply(std::span<const Gemm::Product> products) {
  if (products[0].w->kind() != CpuMatrix::Kind::int8) return gemm_.run_each(products);
  for (const Gemm::Product& p : products) {
    BLEND_RETURN_IF_ERROR(
        int8_gemm_.run(static_cast<const Int8Matrix&>(*p.w), p.x, p.m, p.y, false));
  }
  return Status::ok();
}

void CpuExpertOps::add_biases(const Weight* bias, uint32_t begin, uint32_t end, const Scratch& s,
                              size_t cols, float* rows) {
  if (bias == nullptr) return;
  const float* const all = elements_of(bias);
  const uint32_t first = s.sorted.first[begin];
  pool_.parallel_for(end - begin, 1, [&](size_t i, size_t last, uint32_t) {
    for (; i < last; ++i) {
      const float* const own = all + (begin + i) * cols;
      for (uint32_t row = s.sorted.first[begin + i]; row < s.sorted.first[begin + i + 1]; ++row) {
        float* const to = rows + size_t{row - first} * cols;
        for (size_t c = 0; c < cols; ++c) to[c] += own[c];
      }
    }
  });
}

void CpuExpertOps::gate(const ModelConfig& config, uint32_t n_rows, const float* gate_up,
                        float* out) {
  const size_t d_ff = config.experts.d_ff, inner = inner_dim(config);
  gate_rows(pool_, n_rows, d_ff, gate_of(config.activation), gate_up, gate_up + inner - d_ff, inner,
            out);
}

}  // namespace blend::cpu
