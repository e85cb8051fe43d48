// Backend: memory, weights, GEMM and the other operations of a Transformer on one kind of device;
// groups of further operations come from it (below).
//
// The engine and the fusion are written against this interface and never touch device memory.
// Operations are ordered as they were issued; results are visible to the host when the operation
// that writes them to host memory returns: download(), FusionOps::deviation(), top_k(),
// attention_mass(), encode_kv(). Row positions equal cache slots: slot i of a KV cache holds the
// row at position i of the prompt, so "row i attends to key j iff pos(j) <= pos(i)" is "slots
// 0..pos(i)", or the last `window` of them.
//
// Thread-safe: several fuses may issue operations on one backend at once, each on its own tensors
// and caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/attention.h"
#include "backend/conv_ops.h"
#include "backend/device_memory.h"
#include "backend/expert_ops.h"
#include "backend/family_ops.h"
#include "backend/fusion_ops.h"
#include "backend/host_ops.h"
#include "backend/kv_cache.h"
#include "backend/latent_ops.h"
#include "backend/memory.h"
#include "backend/packed_qkv.h"
#include "backend/record_ops.h"
#include "backend/scan_ops.h"
#include "backend/stream_ops.h"
#include "backend/tensor.h"
#include "backend/traits.h"
#include "backend/weight.h"
#include "base/status.h"
#include "base/threads/thread_pool.h"
#include "formats/half.h"
#include "model/config.h"
#include "model/model_source.h"

namespace blend {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual const BackendTraits& traits() const = 0;

  // ---- Groups of operations. They live as long as the backend; null: it does not have them.
  virtual FusionOps& fusion() = 0;
  virtual HostOps& host() = 0;
  // Null: the device computes in the host's memory.
  virtual DeviceMemory* device_memory() = 0;
  // Null: Q, K and V are computed one after another.
  virtual PackedQkv* packed_qkv() = 0;
  // Null: every step is issued operation by operation.
  virtual RecordOps* record_ops() = 0;
  // Null: it runs no mixtures of experts.
  virtual ExpertOps* experts() = 0;
  // Null: it runs no layers that convolve.
  virtual ConvOps* conv() = 0;
  // Null: it runs no layers with states.
  virtual ScanOps* scan() = 0;
  // Null: all layers have heads of one size, and K and V of their own.
  virtual FamilyOps* family() = 0;
  // Null: every row is one stream.
  virtual StreamOps* streams() = 0;
  // Null: it attends over K and V of heads alone.
  virtual LatentOps* latent() = 0;

  // ---- Memory
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) = 0;
  // Host memory that the device reads directly, aligned to a page.
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate_host(size_t bytes) = 0;
  // Null: no issued operation still reads host memory.
  virtual Result<std::unique_ptr<Fence>> fence() = 0;
  virtual Status download(const Tensor& src, float* dst) = 0;  // dst: host [rows, cols]

  // ---- Weights. NUMERIC names the tensor that holds a NaN or infinity.
  // The parts are stacked along their rows: [sum of rows, cols]; traits().takes(form).
  virtual Result<std::unique_ptr<Weight>> load_matrix(std::span<const TensorView* const> parts,
                                                      WeightForm form) = 0;
  // known_finite: another weight holds the same elements (a tied embedding), so they were checked.
  virtual Result<std::unique_ptr<Weight>> load_table(const TensorView& table,
                                                     bool known_finite) = 0;
  // The parts one after another, `offset` added to each element.
  virtual Result<std::unique_ptr<Weight>> load_vector(std::span<const TensorView* const> parts,
                                                      float offset) = 0;

  // ---- Rows
  // out[i] = table[tokens[i]]; tokens: host [out.rows], checked by the caller.
  virtual Status embed(const Weight& table, const int32_t* tokens, Tensor out) = 0;
  // dst[i] = src[rows[i]]; rows: host, ascending; src and dst may share memory.
  virtual Status gather(Tensor src, const uint32_t* rows, Tensor dst) = 0;
  // y = x W^T, or y += x W^T; x: [rows, in], W: [out, in], y: [rows, out].
  virtual Status matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) = 0;
  // x[i] += bias; bias: [x.cols].
  virtual Status add_bias(const Weight& bias, Tensor x) = 0;
  // x += y, of one shape, f32.
  virtual Status add(Tensor x, Tensor y) = 0;
  // x *= factor; x: f32.
  virtual Status scale(Tensor x, float factor) = 0;
  // out = x / rms(x) * weight (Zhang & Sennrich 2019); x, out: [rows, d].
  virtual Status rms_norm(Tensor x, const Weight& weight, float eps, Tensor out) = 0;
  // rms_norm() of each of the first n_heads heads of every row, in place; weight: [head_dim]; the
  // rest of a row stays.
  virtual Status norm_heads(Tensor x, uint32_t n_heads, const Weight& weight, float eps) = 0;
  // out = activation(gate) * up (Shazeer 2020); gate_up: [rows, 2 * d_ff] = gate | up; out:
  // [rows, d_ff].
  virtual Status glu(Activation activation, Tensor gate_up, Tensor out) = 0;

  // ---- Attention
  // cos and sin times params.attention_factor. rotary_dim 0: a table that rotates nothing.
  virtual Result<std::shared_ptr<RopeTable>> make_rope(const RopeParams& params,
                                                       uint32_t n_positions) = 0;
  virtual Result<std::unique_ptr<KvCache>> make_kv_cache(const ModelConfig& config,
                                                         uint32_t capacity) = 0;
  // Rotates q in place; q: [rows, n_heads * head_dim]; pos: host [rows].
  virtual Status rope_q(const RopeTable& rope, const uint32_t* pos, uint32_t head_dim,
                        Tensor q) = 0;
  // Puts fresh K (rotated on the way) and V into slots pos[i]; kv: [rows, 2 * kv_dim] = K | V.
  virtual Status write_kv(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor kv,
                          const uint32_t* pos) = 0;
  // Moves rows to other slots of the same layer (the ranges may overlap), of another layer or of
  // another cache. K of position p becomes K of position p + turn: the angle of RoPE is position *
  // frequency, with any scaling, so the turn composes with the rotation of K in the cache.
  // Allocates nothing and fails only when a slot or turn does not exist (INTERNAL), so that a
  // caller who has checked them may rely on it. dst_layer must not be used by others meanwhile.
  virtual Status move_rows(const KvCache& src, KvCache& dst, const RopeTable& rope,
                           const RowMove& rows) = 0;
  // out[i] = softmax(q[i] K^T * scale) V over the slots that row i sees, per head (GQA).
  // q, out: [rows, n_heads * head_dim], may be the same memory; pos: host, ascending. Over latent
  // rows: LatentOps.
  virtual Status attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                           Tensor q, const uint32_t* pos, Tensor out) = 0;
  // attention() of rows that each see a cache of their own, in place; bit for bit its result for
  // each by itself. The caches are of one model.
  virtual Status attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                                std::span<const RowOver> rows) = 0;
};

// The CPU backend on `pool`, which must outlive it; its caches keep K and V as `cache`. Fails
// on supported hosts only for want of memory.
Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool, DType cache = DType::f32);

}  // namespace blend
