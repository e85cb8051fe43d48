#include "backend/cuda/attention_call.h"

#include <algorithm>

#include "backend/cuda/recorder.h"
#include "backend/cuda/tensors.h"
#include "backend/outside.h"

namespace blend::cuda {

namespace k = kernels::cuda;

Result<AttentionCall> begin_attention(const CudaCore& core, const char* op, const KvCache& cache,
                                      uint32_t layer, const AttentionRule& rule, Tensor q,
                                      const uint32_t* pos, Tensor out) {
  const auto& c = static_cast<const CudaKvCache&>(cache);
  const auto n = static_cast<size_t>(q.rows);
  AttentionCall call;
  call.last = pos[n - 1];
  if (call.last >= c.capacity()) return outside(op, call.last, c.capacity());
  call.view = c.layer(layer);
  const auto group = static_cast<uint32_t>(static_cast<size_t>(q.cols) / call.view.kv_dim());
  call.plan =
      k::plan_attention(static_cast<uint32_t>(n), group, call.view.n_kv_heads, call.view.head_dim,
                        rule.window == 0 ? call.last : std::min(call.last, rule.window - 1),
                        core.device().n_multiprocessors());
  Recorder::covers(core.device(),
                   std::min(c.capacity() - 1, k::plan_lasts(call.plan, rule.window)));
  BLEND_ASSIGN(call.pos, core.stager().share(pos, n));
  call.rows = {
      rows_of(q),  rows_of(out), call.pos.as<uint32_t>(), rule.scale_of(call.view.head_dim),
      rule.window, rule.softcap, elements_of(rule.sinks)};
  return call;
}

}  // namespace blend::cuda
