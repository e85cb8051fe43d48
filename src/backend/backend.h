// Backend: memory, weights, GEMM and the fused kernels of one kind of device.
//
// The engine and the fusion are written against this interface and never touch device memory.
// Operations are ordered as they were issued; results are visible to the host after download(),
// deviation(), attention_mass() or encode_kv() returns. Row positions equal cache slots: slot i of
// a KV cache holds the row at position i of the prompt, so "row i attends to key j iff pos(j) <=
// pos(i)" is "slots 0..pos(i)", or the last `window` of them.
//
// Thread-safe: several fuses may issue operations on one backend at once, each on its own tensors
// and caches.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/half.h"
#include "base/packing.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/model_source.h"

namespace blend {

// Memory of the device, or of the host where allocate_host() made it; freed with the object, but
// not before operations issued with it are done.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() const = 0;
};

// Waits for host memory to be read by the operations issued before it was made. Used by one
// thread at a time.
class Fence {
 public:
  virtual ~Fence() = default;
  // Blocks until they have read it.
  virtual void wait() = 0;
};

// A view of activations: row-major, contiguous. elem_bytes tells the type: activation_bytes()
// means f32, and operand_bytes(), where fewer, bf16. Shapes are given as [rows, cols] where
// tensors are passed.
struct Tensor {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t elem_bytes = 4;

  Tensor slice(int64_t first, int64_t n) const {
    return {static_cast<std::byte*>(data) + first * cols * elem_bytes, n, cols, elem_bytes};
  }
};

// How matrices are kept: = BLEND_WEIGHTS_*.
enum class WeightForm : uint32_t {
  automatic = 0,  // Model chooses
  packed = 1,     // a copy in the form that the backend computes fastest with
  mapped = 2,     // as in the file, decoded when used: no memory, slower for many rows
  int8 = 3,       // a copy of 8 bits a weight, multiplied with activations of 8 bits where possible
};

// A weight in the backend's own form: packed matrix, lookup table, or vector. Immutable.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual size_t bytes() const = 0;  // memory it owns (0 where it refers to the mapped file)
};

// cos/sin of every position up to a limit. Immutable.
class RopeTable {
 public:
  virtual ~RopeTable() = default;
  virtual uint32_t n_positions() const = 0;
};

// The K (rotated) and V of one prompt, all layers, in a layout private to the backend. Concurrent
// calls may touch different layers.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual uint32_t capacity() const = 0;  // slots
};

// A run of consecutive stored rows, in host memory; K before RoPE. Operations may read it after
// they have returned if it lies in memory of allocate_host(): fence() says until when.
struct StoredRun {
  const std::byte* k = nullptr;  // [n_rows, kv_dim] of dtype
  const std::byte* v = nullptr;  // [n_rows, kv_dim] of dtype
  DType dtype = DType::f16;
  uint32_t n_rows = 0;
  uint32_t first = 0;  // place(): slot of the first row; deviation(): row of the fresh tensor
  // Not none: k and v are encoded planes, and the run is their rows from plane_row on; dtype is
  // the type that their values are rounded to. Only where Backend::unpacks().
  PackedPlanes packed = {};
  uint32_t plane_row = 0;
  const DeviceBuffer* kept = nullptr;  // not null: k and v lie there, not in host memory
};

// Host memory that is copied `at` bytes into memory of keep().
struct KeptPart {
  const std::byte* from = nullptr;
  size_t bytes = 0;
  size_t at = 0;
};

// Host memory that a step of one row reads, which changes from run to run.
struct StepInput {
  int32_t token = 0;
  uint32_t pos = 0;
};

// A recorded step of one row (Backend::record()), to be run for other tokens and positions without
// issuing its operations again. Used by one thread at a time; the objects that its operations work
// on must outlive it.
class RecordedStep {
 public:
  virtual ~RecordedStep() = default;
  // Whether the recording does for this position what issuing the step would do.
  virtual bool covers(uint32_t pos) const = 0;
  // Issues the step; covers(input.pos).
  virtual Status run(const StepInput& input) = 0;
};

// A row of Q and the cache that it sees: slots 0 .. pos, or the layer's window of them.
struct RowOver {
  const KvCache* cache = nullptr;
  uint32_t row = 0;
  uint32_t pos = 0;
};

// A row of Q | K | V and the slot that it goes to, of a cache of its own.
struct RowInto {
  KvCache* cache = nullptr;
  const RopeTable* q_rope = nullptr;
  const RopeTable* k_rope = nullptr;
  uint32_t row = 0;
  uint32_t pos = 0;
};

// Rows that move() takes to other slots.
struct RowMove {
  uint32_t src_layer = 0;
  uint32_t from = 0;
  uint32_t dst_layer = 0;
  uint32_t to = 0;
  uint32_t n = 0;    // slots [from, from + n) go to [to, to + n)
  int32_t turn = 0;  // positions by which K is rotated
};

enum class DeviationMetric : uint32_t { v = 1, k = 2, kv = 3 };  // = BLEND_METRIC_*
enum class DeviationNorm : uint32_t { l2, l1 };                  // = BLEND_NORM_*

// How the deviation of a row is computed. l2 sums squares (the paper's), l1 magnitudes.
struct DeviationRule {
  DeviationMetric metric = DeviationMetric::v;
  DeviationNorm norm = DeviationNorm::l2;
  bool relative = false;  // divided by the same sum over the stored row alone
};

// Facts about a stored row besides its K and V. The first kScales of them also multiply these.
struct StoredFeatures {
  static constexpr size_t kScales = 2;
  static constexpr size_t kCount = 5;
  std::array<float, kCount> values;

  // inside, outside: of the row (engine/context_impact.h); place: its index in its chunk.
  static StoredFeatures of(float inside, float outside, uint32_t place) {
    constexpr float kLeast = 1e-6f;
    return {{1.0f, outside, std::log(std::max(outside, kLeast)), std::log(std::max(inside, kLeast)),
             std::log1p(static_cast<float>(place))}};
  }
};

// Inputs of a row to the drift maps (profile/drift_maps.h) besides its deviation vector.
struct DriftInputs {
  bool fresh = false;     // K | V of the row as computed at the check layer
  bool constant = false;  // 1
  bool stored = false;    // without these: for a row of which nothing is computed
  bool operator==(const DriftInputs&) const = default;
  static DriftInputs of_stored() { return {false, false, true}; }

  // Inputs of a row: [fresh - stored: 2 kv_dim][fresh: 2 kv_dim, or nothing][1, or nothing]; of a
  // stored one: [K | V times each of the first kScales features][features].
  size_t size(size_t kv_dim) const {
    if (stored) return 2 * kv_dim * StoredFeatures::kScales + StoredFeatures::kCount;
    return 2 * kv_dim * (fresh ? 2u : 1u) + (constant ? 1u : 0u);
  }
};

// Share of the drift correction that is applied (fusion/corrector.h): a factor for K, one for V.
struct DriftShare {
  float k = 1;
  float v = 1;
};

// How a row's scores are computed from Q and K, and which keys it sees.
struct AttentionRule {
  float scale = 0;      // of the scores; 0: 1 / sqrt(head_dim)
  uint32_t window = 0;  // row i sees slots pos[i] - window + 1 .. pos[i]; 0: all from slot 0 on
  float softcap = 0;    // scores become softcap * tanh(score / softcap); 0: off
};

// Added by place() to stored rows, to K before it is rotated (the drift correction).
struct Correction {
  static constexpr uint32_t kNone = UINT32_MAX;
  Tensor kv;                      // [rows, 2 * kv_dim] = K | V
  const uint32_t* row = nullptr;  // host [capacity]: the row of kv for a slot, or kNone
};

// The weights of Q, K and V stacked, [q_dim + 2 * kv_dim, d_model], and those applied after their
// product; null: nothing.
struct QkvWeights {
  const Weight* stacked = nullptr;
  const Weight* bias = nullptr;    // [q_dim + 2 * kv_dim]
  const Weight* q_norm = nullptr;  // [head_dim]
  const Weight* k_norm = nullptr;  // [head_dim]
  float eps = 0;                   // of the norms
};

// Destination of Q, K and V of rows at slots of a cache, for project_qkv().
struct QkvPlaces {
  KvCache* cache = nullptr;
  uint32_t layer = 0;
  const RopeTable* q_rope = nullptr;
  const RopeTable* k_rope = nullptr;
  const uint32_t* pos = nullptr;  // host [rows]
  Tensor q;                       // [rows, q_dim], rotated
  Tensor kv;                      // [rows, 2 * kv_dim] = K before RoPE | V
  Tensor scratch;                 // f32 [rows, q_dim + 2 * kv_dim]
};

// Slots whose keys are attended to at a temperature, and whose sum of exponentials is raised to a
// power, before they share a row's attention with the others (APE, Yang et al. 2025).
struct Tempering {
  const uint8_t* slots = nullptr;  // host [the last row's position + 1]: non-zero = tempered
  float temperature = 1.0f;        // T > 0
  float scale = 1.0f;              // S > 0
};

// K and V of consecutive rows of one layer in the memory of a host that runs the model itself:
// element e of head h of row i lies at i * row_stride + h * head_stride + e, of dtype.
struct HostKv {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType dtype = DType::f32;
  bool rotated = true;     // K carries its row's position; false: before RoPE
  size_t row_stride = 0;   // elements
  size_t head_stride = 0;  // elements
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;

  uint32_t kv_dim() const { return n_kv_heads * head_dim; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // Per element of the residual stream, K | V, logits and everything else that is kept or summed
  // up: f32.
  virtual int64_t activation_bytes() const = 0;
  // Per element of rows that only feed a GEMM or attention: normed rows, Q, the feed-forward's
  // inner rows. Operations on them take either type.
  virtual int64_t operand_bytes() const { return activation_bytes(); }
  // Per element of a KV cache.
  virtual int64_t cache_bytes() const = 0;
  // Whether it decodes packed rows itself, so that fewer bytes go to the device.
  virtual bool unpacks() const { return false; }
  // Rows that should pass through a layer's wide scratch at once.
  virtual uint32_t block_rows() const { return 512; }
  // Most sequences with a row in one step; 1: they decode one by one. More only where a row's bits
  // do not depend on the other rows of its product.
  virtual uint32_t step_rows() const { return 1; }
  // Whether they depend on their number: then the products of every step, even one of a single
  // row, have step_rows() rows; those after the step's own are unused.
  virtual bool pads_steps() const { return false; }

  // ---- Memory
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) = 0;
  // Host memory that the device reads directly, aligned to a page.
  virtual Result<std::unique_ptr<DeviceBuffer>> allocate_host(size_t bytes) = 0;
  // Null: no issued operation still reads host memory.
  virtual Result<std::unique_ptr<Fence>> fence() { return std::unique_ptr<Fence>(); }
  // Whether the device has memory of its own, to which keep() copies.
  virtual bool has_own_memory() const { return false; }
  // New memory of the device, for StoredRun::kept, with the parts copied to it. The host's may
  // change after a fence() that is made afterwards.
  virtual Result<std::unique_ptr<DeviceBuffer>> keep(size_t /*bytes*/,
                                                     std::span<const KeptPart> /*parts*/) {
    return make_error(BLEND_E_UNSUPPORTED, "the %s backend has no memory of its own", name());
  }
  // OUT_OF_MEMORY names the bytes that this many elements need and those that are free.
  virtual Status check_room(uint64_t /*n_elements*/) { return Status::ok(); }
  virtual Status download(const Tensor& src, float* dst) = 0;  // dst: host [rows, cols]

  // Whether record() is supported.
  virtual bool records() const { return false; }
  // Records the operations that `issue` issues for one row, without running them: of host memory
  // they read only &input.token and &input.pos, they wait for no result and make nothing that
  // outlives them. Null: not possible here; nothing has happened.
  virtual std::unique_ptr<RecordedStep> record(const StepInput& /*input*/,
                                               const std::function<Status()>& /*issue*/) {
    return nullptr;
  }

  // ---- Weights. NUMERIC names the tensor that holds a NaN or infinity.
  // The parts are stacked along their rows: [sum of rows, cols]. Packed.
  virtual Result<std::unique_ptr<Weight>> load_matrix(std::span<const TensorView* const> parts) = 0;
  // The same in another form, one for which keeps() is true.
  virtual bool keeps(WeightForm form) const { return form == WeightForm::packed; }
  virtual Result<std::unique_ptr<Weight>> load_matrix_as(WeightForm /*form*/,
                                                         std::span<const TensorView* const> parts) {
    return load_matrix(parts);
  }
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
  // out = x / rms(x) * weight (Zhang & Sennrich 2019); x, out: [rows, d].
  virtual Status rms_norm(Tensor x, const Weight& weight, float eps, Tensor out) = 0;
  // y = x W^T, or y += x W^T; x: [rows, in], W: [out, in], y: [rows, out].
  virtual Status matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) = 0;
  // out = silu(gate) * up; gate_up: [rows, 2 * d_ff] = gate | up; out: [rows, d_ff].
  virtual Status swiglu(Tensor gate_up, Tensor out) = 0;
  // The same with GELU by its tanh form.
  virtual Status geglu(Tensor gate_up, Tensor out) = 0;
  // x[i] += bias; bias: [x.cols].
  virtual Status add_bias(const Weight& bias, Tensor x) = 0;
  // rms_norm() of each of the first n_heads heads of every row, in place; weight: [head_dim]; the
  // rest of a row stays.
  virtual Status norm_heads(Tensor x, uint32_t n_heads, const Weight& weight, float eps) = 0;
  // x += y, of one shape, f32.
  virtual Status add(Tensor x, Tensor y) = 0;
  // x *= factor; x: f32.
  virtual Status scale(Tensor x, float factor) = 0;

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
  // The inverse of write_kv, for n = kv.rows slots from `first` on: kv: [n, 2 * kv_dim] = K before
  // RoPE | V. K is exact but for rounding in f32.
  virtual Status read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope,
                         uint32_t first, Tensor kv) = 0;
  // Decodes stored rows, adds `correction` (may be null) to them, rotates K to its slot,
  // scatters both. Rows with skip[slot] != 0 are left alone; skip: host [capacity] or null.
  virtual Status place(KvCache& cache, uint32_t layer, const RopeTable& rope,
                       std::span<const StoredRun> runs, const uint8_t* skip,
                       const Correction* correction) = 0;
  // Moves rows to other slots of the same layer (the ranges may overlap), of another layer or of
  // another cache. K of position p becomes K of position p + turn: the angle of RoPE is position *
  // frequency, with any scaling, so the turn composes with the rotation of K in the cache.
  // Allocates nothing and fails only when a slot or turn does not exist (INTERNAL), so that a
  // caller who has checked them may rely on it. dst_layer must not be used by others meanwhile.
  virtual Status move(const KvCache& src, KvCache& dst, const RopeTable& rope,
                      const RowMove& rows) = 0;
  // out[i] = softmax(q[i] K^T * scale) V over the slots that row i sees, per head (GQA).
  // q, out: [rows, n_heads * head_dim], may be the same memory; pos: host, ascending.
  virtual Status attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                           Tensor q, const uint32_t* pos, Tensor out) = 0;
  // attention() where the keys of some slots are tempered, per row and head:
  //   Z_t = sum over tempered slots of exp(s_j / T), Z_o = sum over the others of exp(s_j)
  //   out = (Z_t^S * weighted mean of their V + Z_o * that of the others') / (Z_t^S + Z_o)
  // mass (may be null): host [rows], the probability that a row put on tempered slots, mean over
  // heads. For few rows: it is slower than attention(), which it equals at T = S = 1.
  virtual Status attention_tempered(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                                    Tensor q, const uint32_t* pos, const Tempering& tempering,
                                    Tensor out, float* mass) = 0;
  // mass[j] += the probability that attention() would put on slot j, summed over rows and heads.
  // q: [rows, n_heads * head_dim], rotated; pos: host, ascending; mass: host [pos[rows - 1] + 1].
  // The same to the last bit on any number of threads.
  virtual Status attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                                Tensor q, const uint32_t* pos, float* mass) = 0;

  // ---- Fusion (CacheBlend 4.2: deviation of row i = sum over kv_dim of (fresh - stored)^2)
  // out: host [kv.rows]; only the rows of runs are written. kv: [rows, 2 * kv_dim], K before RoPE.
  virtual Status deviation(Tensor kv, std::span<const StoredRun> runs, const DeviationRule& rule,
                           float* out) = 0;
  // The drift maps' inputs of the same rows: out: [kv.rows, inputs.size(kv_dim)]; only the rows of
  // runs are written.
  virtual Status drift_inputs(Tensor kv, std::span<const StoredRun> runs, DriftInputs inputs,
                              Tensor out) = 0;
  // The inputs of rows of which nothing is computed: out: [rows, DriftInputs::of_stored().size()];
  // features: host [out.rows]; only the rows of runs are written.
  virtual Status stored_inputs(std::span<const StoredRun> runs, const StoredFeatures* features,
                               Tensor out) = 0;
  // How well the drift maps did on rows whose drift is known: the least-squares factors that bring
  // their predictions nearest to it, for K and for V, each within 0 and 1; 0 where nothing was
  // predicted. predicted, drift: [rows, 2 * kv_dim] = K | V. Same to the last bit on any number
  // of threads.
  virtual Status drift_share(Tensor predicted, Tensor drift, DriftShare* share) = 0;
  // K of every row times share.k, V times share.v; kv: [rows, 2 * kv_dim].
  virtual Status scale_kv(Tensor kv, DriftShare share) = 0;
  // Indices of the k largest scores, ascending; ties go to the lower index. NaN counts as largest.
  virtual Status top_k(std::span<const float> scores, size_t k, uint32_t* out) = 0;
  // Splits and rounds fresh K | V to storage: k, v: host [rows, kv_dim] of dtype. NUMERIC when a
  // value is not finite in dtype.
  virtual Status encode_kv(Tensor kv, DType dtype, std::byte* k, std::byte* v) = 0;

  // ---- A host that runs the model itself (the step API)
  // Rows of `src` as the model computes them: kv[i] = K | V of row i, K rotated back from pos[i] if
  // it is rotated; pos: host [kv.rows]. NUMERIC names the first row that is not finite.
  virtual Status read_host(const HostKv& src, const RopeTable& rope, const uint32_t* pos,
                           Tensor kv) = 0;
  // place() into host memory: row r of the prompt is row r of `dst`. NUMERIC when a value is not
  // finite in its dtype.
  virtual Status place_host(const HostKv& dst, const RopeTable& rope,
                            std::span<const StoredRun> runs, const uint8_t* skip,
                            const Correction* correction) = 0;

  // ---- Q, K and V by one product
  // Whether project_qkv() is supported, and the weights of Q, K and V are to be stacked for it.
  virtual bool stacks_qkv() const { return false; }
  // Rows [first, first + rows) of a stacked matrix, in its memory, which both keep.
  virtual Result<std::unique_ptr<Weight>> part_of(const Weight& /*matrix*/, int64_t /*first*/,
                                                  int64_t /*rows*/) {
    return make_error(BLEND_E_INTERNAL, "the %s backend does not stack matrices", name());
  }
  // matmul(), add_bias(), norm_heads(), write_kv() and rope_q() of a layer's rows at once; x:
  // [rows, d_model], normed. x and the scratch may have more rows than q.
  virtual Status project_qkv(const QkvWeights& /*weights*/, Tensor /*x*/, const QkvPlaces& /*to*/) {
    return make_error(BLEND_E_INTERNAL, "the %s backend does not stack matrices", name());
  }

  // ---- Many sequences
  // Another cache of the same capacity, with the first n_rows slots of `cache`; both share slots
  // that neither writes to; nobody else uses `cache` meanwhile. Null: not possible here.
  virtual Result<std::unique_ptr<KvCache>> fork_kv_cache(KvCache& /*cache*/, uint32_t /*n_rows*/) {
    return std::unique_ptr<KvCache>();
  }
  // project_qkv() of rows that each go to a cache of their own, bit for bit its result for each
  // by itself where the product has as many rows; q, x and scratch as there. Rows that are not
  // named go nowhere, and their Q may be anything.
  virtual Status project_qkv_each(const QkvWeights& /*weights*/, uint32_t /*layer*/, Tensor /*x*/,
                                  std::span<const RowInto> /*rows*/, Tensor /*q*/,
                                  Tensor /*scratch*/) {
    return make_error(BLEND_E_INTERNAL, "the %s backend does not stack matrices", name());
  }
  // attention() of rows that each see a cache of their own, in place; bit for bit its result for
  // each by itself. The caches are of one model.
  virtual Status attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                                std::span<const RowOver> rows) {
    for (const RowOver& r : rows) {
      const Tensor one = q.slice(r.row, 1);
      if (Status s = attention(*r.cache, layer, rule, one, &r.pos, one); !s.is_ok()) return s;
    }
    return Status::ok();
  }
};

// The CPU backend on `pool`, which must outlive it; its caches keep K and V as `cache`. Fails
// on supported hosts only for want of memory.
Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool, DType cache = DType::f32);

}  // namespace blend
