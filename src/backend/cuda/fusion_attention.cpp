// Attention of a fuse: tempered, and the mass that slots get.
#include <vector>

#include "backend/cuda/attention_call.h"
#include "backend/cuda/fusion_ops.h"
#include "cuda/attention_mass.h"
#include "cuda/attention_tempered.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

}  // namespace

Status CudaFusionOps::attention_tempered(const KvCache& cache, uint32_t layer,
                                         const AttentionRule& rule, Tensor q, const uint32_t* pos,
                                         const Tempering& tempering, Tensor out, float* mass) {
  const auto rows = static_cast<size_t>(q.rows);
  if (rows == 0) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const AttentionCall call,
               begin_attention(core_, "attention_tempered", cache, layer, rule, q, pos, out));
  const size_t n_heads = static_cast<size_t>(q.cols) / call.view.head_dim;
  BLEND_ASSIGN(const Stager::Shared slots,
               core_.stager().share(tempering.slots, size_t{call.last} + 1));
  BLEND_ASSIGN(const Memory scratch,
               core_.device().allocate(k::tempered_scratch_floats(call.plan) * sizeof(float)));
  Memory masses;  // [rows][n_heads]
  if (mass != nullptr) {
    BLEND_ASSIGN(masses, core_.device().allocate(rows * n_heads * sizeof(float)));
  }
  const k::Tempered tempered{slots.as<uint8_t>(), tempering.temperature, tempering.scale,
                             masses.as<float>()};
  k::attention_tempered(call.rows, tempered, call.view, call.plan, scratch.as<float>(),
                        core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("attention_tempered"));
  if (mass == nullptr) return Status::ok();
  std::vector<float> of_heads(rows * n_heads);
  BLEND_RETURN_IF_ERROR(
      core_.fetch(of_heads.data(), masses.as<void>(), of_heads.size() * sizeof(float)));
  for (size_t i = 0; i < rows; ++i) {
    mass[i] = 0;
    for (size_t head = 0; head < n_heads; ++head) mass[i] += of_heads[i * n_heads + head];
    mass[i] /= static_cast<float>(n_heads);
  }
  return Status::ok();
}

Status CudaFusionOps::attention_mass(const KvCache& cache, uint32_t layer,
                                     const AttentionRule& rule, Tensor q, const uint32_t* pos,
                                     float* mass) {
  if (q.rows == 0) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const AttentionCall call,
               begin_attention(core_, "attention_mass", cache, layer, rule, q, pos, q));
  const uint32_t n_sms = core_.device().n_multiprocessors();
  const size_t n_slots = size_t{call.last} + 1;
  BLEND_ASSIGN(const Memory sums, core_.stager().upload(mass, n_slots));
  BLEND_ASSIGN(
      const Memory scratch,
      core_.device().allocate(k::mass_scratch_floats(call.plan, call.last, n_sms) * sizeof(float)));
  k::attention_mass(call.rows, call.view, call.plan, call.last, n_sms, scratch.as<float>(),
                    sums.as<float>(), core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("attention_mass"));
  return core_.fetch(mass, sums.as<void>(), n_slots * sizeof(float));
}

}  // namespace blend::cuda
