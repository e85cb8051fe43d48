// TimedBackend: a backend that another one computes for, with a clock beside every operation: the
// phases of a prefill, and what every operation takes, without a profiler in the library. It is
// also the groups of operations that it hands out.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <tuple>

#include "backend/backend.h"

namespace blend::bench {

// For one caller at a time. On a device, whose operations are only issued, settle() has each waited
// for: an operation's time is then its own, and the sum more than a pass takes.
class TimedBackend final : public Backend,
                           private FusionOps,
                           private HostOps,
                           private PackedQkv,
                           private ExpertOps {
 public:
  struct Phase {
    double seconds = 0;
    double flops = 0;  // of attention: of the keys that a row sees
  };
  struct Phases {
    Phase gemm, attention;
    double other_s = 0;  // all other operations
    struct Operation {
      uint64_t times = 0;
      double seconds = 0;
    };
    std::map<std::string, Operation> operations;  // by name
    // One shape of GEMM, y [m, n] = x [m, k] W^T.
    struct Product {
      uint64_t times = 0;
      double seconds = 0;  // of all of them
    };
    std::map<std::tuple<int64_t, int64_t, int64_t>, Product> products;  // by [m, k, n]
  };

  explicit TimedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  void reset() { phases_ = {}; }
  Status settle(bool on) {
    settled_.reset();
    if (on) {
      BLEND_ASSIGN(settled_, inner_->allocate(sizeof(float)));
    }
    return Status::ok();
  }
  const Phases& phases() const { return phases_; }

  const char* name() const override { return inner_->name(); }
  const BackendTraits& traits() const override { return inner_->traits(); }

  FusionOps& fusion() override { return *this; }
  HostOps& host() override { return *this; }
  DeviceMemory* device_memory() override { return inner_->device_memory(); }
  PackedQkv* packed_qkv() override { return inner_->packed_qkv() == nullptr ? nullptr : this; }
  RecordOps* record_ops() override { return inner_->record_ops(); }
  ExpertOps* experts() override { return inner_->experts() == nullptr ? nullptr : this; }
  ConvOps* conv() override { return inner_->conv(); }
  ScanOps* scan() override { return inner_->scan(); }
  FamilyOps* family() override { return inner_->family(); }
  StreamOps* streams() override { return inner_->streams(); }
  LatentOps* latent() override { return inner_->latent(); }

  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    return inner_->allocate(bytes);
  }
  Result<std::unique_ptr<DeviceBuffer>> allocate_host(size_t bytes) override {
    return inner_->allocate_host(bytes);
  }
  Result<std::unique_ptr<Fence>> fence() override { return inner_->fence(); }
  Status download(const Tensor& src, float* dst) override {
    return other("download", [&] { return inner_->download(src, dst); });
  }

  Result<std::unique_ptr<Weight>> load_matrix(std::span<const TensorView* const> parts,
                                              WeightForm form) override {
    return inner_->load_matrix(parts, form);
  }
  Result<std::unique_ptr<Weight>> load_table(const TensorView& table, bool known_finite) override {
    return inner_->load_table(table, known_finite);
  }
  Result<std::unique_ptr<Weight>> load_vector(std::span<const TensorView* const> parts,
                                              float offset) override {
    return inner_->load_vector(parts, offset);
  }

  Status embed(const Weight& table, const int32_t* tokens, Tensor out) override {
    return other("embed", [&] { return inner_->embed(table, tokens, out); });
  }
  Status gather(Tensor src, const uint32_t* rows, Tensor dst) override {
    return other("gather", [&] { return inner_->gather(src, rows, dst); });
  }
  Status rms_norm(Tensor x, const Weight& weight, float eps, Tensor out) override {
    return other("rms_norm", [&] { return inner_->rms_norm(x, weight, eps, out); });
  }
  Status matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) override {
    phases_.gemm.flops += 2.0 * static_cast<double>(x.rows) * static_cast<double>(x.cols) *
                          static_cast<double>(y.cols);
    Phases::Product& product = phases_.products[{x.rows, x.cols, y.cols}];
    ++product.times;
    const double before = phases_.gemm.seconds;
    const Status status =
        timed("matmul", phases_.gemm.seconds, [&] { return inner_->matmul(w, x, y, accumulate); });
    product.seconds += phases_.gemm.seconds - before;
    return status;
  }
  Status glu(Activation activation, Tensor gate_up, Tensor out) override {
    return other(activation == Activation::silu ? "swiglu" : "geglu",
                 [&] { return inner_->glu(activation, gate_up, out); });
  }
  Status add_bias(const Weight& bias, Tensor x) override {
    return other("add_bias", [&] { return inner_->add_bias(bias, x); });
  }
  Status norm_heads(Tensor x, uint32_t n_heads, const Weight& weight, float eps) override {
    return other("norm_heads", [&] { return inner_->norm_heads(x, n_heads, weight, eps); });
  }
  Status add(Tensor x, Tensor y) override {
    return other("add", [&] { return inner_->add(x, y); });
  }
  Status scale(Tensor x, float factor) override {
    return other("scale", [&] { return inner_->scale(x, factor); });
  }

  Result<std::shared_ptr<RopeTable>> make_rope(const RopeParams& params,
                                               uint32_t n_positions) override {
    return inner_->make_rope(params, n_positions);
  }
  Result<std::unique_ptr<KvCache>> make_kv_cache(const ModelConfig& config,
                                                 uint32_t capacity) override {
    return inner_->make_kv_cache(config, capacity);
  }
  Status rope_q(const RopeTable& rope, const uint32_t* pos, uint32_t head_dim, Tensor q) override {
    return other("rope_q", [&] { return inner_->rope_q(rope, pos, head_dim, q); });
  }
  Status write_kv(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor kv,
                  const uint32_t* pos) override {
    return other("write_kv", [&] { return inner_->write_kv(cache, layer, rope, kv, pos); });
  }
  Status move_rows(const KvCache& src, KvCache& dst, const RopeTable& rope,
                   const RowMove& rows) override {
    return other("move_rows", [&] { return inner_->move_rows(src, dst, rope, rows); });
  }
  Status attention(const KvCache& cache, uint32_t layer, const AttentionRule& rule, Tensor q,
                   const uint32_t* pos, Tensor out) override {
    double keys = 0;
    for (int64_t i = 0; i < q.rows; ++i) {
      const uint32_t all = pos[i] + 1;
      keys += rule.window == 0 || rule.window > all ? all : rule.window;
    }
    // Two products with each key's or value's head_dim elements, for every query head.
    phases_.attention.flops += 4.0 * keys * static_cast<double>(q.cols);
    return timed("attention", phases_.attention.seconds,
                 [&] { return inner_->attention(cache, layer, rule, q, pos, out); });
  }
  Status attention_each(uint32_t layer, const AttentionRule& rule, Tensor q,
                        std::span<const RowOver> rows) override {
    return other("attention_each", [&] { return inner_->attention_each(layer, rule, q, rows); });
  }

 private:
  // ---- ExpertOps: products of shapes that depend on the rows, so only their sum is kept.
  Result<std::unique_ptr<Weight>> load(std::span<const std::vector<const TensorView*>> parts,
                                       WeightForm form) override {
    return inner_->experts()->load(parts, form);
  }
  size_t scratch_bytes(const ModelConfig& config, uint32_t max_rows) const override {
    return inner_->experts()->scratch_bytes(config, max_rows);
  }
  Status weigh(const Weight& vector, Tensor by, Tensor x) override {
    return other("weigh", [&] { return inner_->experts()->weigh(vector, by, x); });
  }
  Status run(const ExpertLayer& layer, const ModelConfig& config, Tensor x, Tensor scores, Tensor y,
             DeviceBuffer& scratch) override {
    phases_.gemm.flops += 2.0 * 3.0 * static_cast<double>(x.rows) * config.experts.used *
                          static_cast<double>(x.cols) * config.experts.d_ff;
    return timed("experts", phases_.gemm.seconds,
                 [&] { return inner_->experts()->run(layer, config, x, scores, y, scratch); });
  }

  // ---- FusionOps
  Status scatter(KvCache& cache, uint32_t layer, const RopeTable& rope,
                 std::span<const StoredRun> runs, const uint8_t* skip,
                 const Correction* correction) override {
    return other("scatter", [&] {
      return inner_->fusion().scatter(cache, layer, rope, runs, skip, correction);
    });
  }
  Status read_kv(const KvCache& cache, uint32_t layer, const RopeTable& rope, const uint32_t* slots,
                 Tensor kv) override {
    return other("read_kv",
                 [&] { return inner_->fusion().read_kv(cache, layer, rope, slots, kv); });
  }
  Status encode_kv(Tensor kv, DType dtype, std::byte* k, std::byte* v) override {
    return other("encode_kv", [&] { return inner_->fusion().encode_kv(kv, dtype, k, v); });
  }
  Status deviation(Tensor kv, std::span<const StoredRun> runs, const DeviationRule& rule,
                   float* out) override {
    return other("deviation", [&] { return inner_->fusion().deviation(kv, runs, rule, out); });
  }
  Status top_k(std::span<const float> scores, size_t k, uint32_t* out) override {
    return other("top_k", [&] { return inner_->fusion().top_k(scores, k, out); });
  }
  Status drift_inputs(Tensor kv, std::span<const StoredRun> runs, DriftInputs inputs,
                      Tensor out) override {
    return other("drift_inputs",
                 [&] { return inner_->fusion().drift_inputs(kv, runs, inputs, out); });
  }
  Status stored_inputs(std::span<const StoredRun> runs, const StoredFeatures* features,
                       Tensor out) override {
    return other("stored_inputs",
                 [&] { return inner_->fusion().stored_inputs(runs, features, out); });
  }
  Status drift_share(Tensor predicted, Tensor drift, DriftShare* share) override {
    return other("drift_share",
                 [&] { return inner_->fusion().drift_share(predicted, drift, share); });
  }
  Status scale_kv(Tensor kv, DriftShare share) override {
    return other("scale_kv", [&] { return inner_->fusion().scale_kv(kv, share); });
  }
  Status shift_rows(KvCache& cache, uint32_t layer, const RopeTable& rope, const Moves& moves,
                    std::span<const ShiftedChunk> chunks) override {
    return other("shift_rows",
                 [&] { return inner_->fusion().shift_rows(cache, layer, rope, moves, chunks); });
  }
  Status attention_mass(const KvCache& cache, uint32_t layer, const AttentionRule& rule, Tensor q,
                        const uint32_t* pos, float* mass) override {
    return other("attention_mass",
                 [&] { return inner_->fusion().attention_mass(cache, layer, rule, q, pos, mass); });
  }
  Status attention_tempered(const KvCache& cache, uint32_t layer, const AttentionRule& rule,
                            Tensor q, const uint32_t* pos, const Tempering& tempering, Tensor out,
                            float* mass) override {
    return other("attention_tempered", [&] {
      return inner_->fusion().attention_tempered(cache, layer, rule, q, pos, tempering, out, mass);
    });
  }

  // ---- HostOps
  Status read(const HostKv& src, const RopeTable& rope, const uint32_t* pos, Tensor kv) override {
    return other("read_host", [&] { return inner_->host().read(src, rope, pos, kv); });
  }
  Status scatter(const HostKv& dst, const RopeTable& rope, std::span<const StoredRun> runs,
                 const uint8_t* skip, const Correction* correction) override {
    return other("scatter_host",
                 [&] { return inner_->host().scatter(dst, rope, runs, skip, correction); });
  }

  // ---- PackedQkv
  Result<std::unique_ptr<Weight>> part_of(const Weight& matrix, int64_t first,
                                          int64_t rows) override {
    return inner_->packed_qkv()->part_of(matrix, first, rows);
  }
  Status project(const QkvWeights& weights, Tensor x, const QkvTarget& to) override {
    return other("project_qkv", [&] { return inner_->packed_qkv()->project(weights, x, to); });
  }
  Status project_each(const QkvWeights& weights, uint32_t layer, Tensor x,
                      std::span<const RowInto> rows, Tensor q, Tensor scratch) override {
    return other("project_qkv_each", [&] {
      return inner_->packed_qkv()->project_each(weights, layer, x, rows, q, scratch);
    });
  }

  using Clock = std::chrono::steady_clock;

  Status timed(const char* name, double& seconds, const auto& operation) {
    const auto begin = Clock::now();
    Status status = operation();
    if (settled_ != nullptr && status.is_ok()) {
      float ignored = 0;
      status = inner_->download({settled_->data(), 1, 1, 4}, &ignored);
    }
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    seconds += took;
    Phases::Operation& all = phases_.operations[name];
    ++all.times;
    all.seconds += took;
    return status;
  }
  Status other(const char* name, const auto& operation) {
    return timed(name, phases_.other_s, operation);
  }

  const std::unique_ptr<Backend> inner_;
  Phases phases_;
  std::unique_ptr<DeviceBuffer> settled_;  // not null: every operation is waited for
};

}  // namespace blend::bench
