// The C ABI as the conformance tests use it: owned handles and one call that fuses a prompt.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blend/admin.h"
#include "blend/blend.h"
#include "blend/experimental.h"
#include "blend/fidelity.h"
#include "blend/remote.h"
#include "blend/report.h"
#include "blend/step.h"
#include "support/reference_fusion.h"

namespace blend::test {

template <auto Close>
struct CloseWith {
  template <typename T>
  void operator()(T* handle) const {
    Close(handle);
  }
};
using Ctx = std::unique_ptr<blend_ctx, CloseWith<blend_ctx_close>>;
using Model = std::unique_ptr<blend_model, CloseWith<blend_model_close>>;
using Store = std::unique_ptr<blend_store, CloseWith<blend_store_close>>;
using Fusion = std::unique_ptr<blend_fusion, CloseWith<blend_fusion_close>>;
using Layerwise = std::unique_ptr<blend_layerwise, CloseWith<blend_layerwise_close>>;
using Profile = std::unique_ptr<blend_profile, CloseWith<blend_profile_close>>;
using Cancel = std::unique_ptr<blend_cancel, CloseWith<blend_cancel_free>>;

// What a call said: its code, and the error object's content.
struct Outcome {
  int32_t code = BLEND_OK;
  int64_t detail = 0;
  std::string message;
};
// Takes the error object; the call's code and the object's must agree.
Outcome outcome(int32_t code, blend_error* error);

// Counts the warnings and errors of a context; may be called from several threads.
struct LogCount {
  std::atomic<int> n{0};
  std::atomic<int32_t> last_code{0};
  static int32_t on_log(void* user, const blend_log_record* record);
};

Ctx make_ctx(uint32_t n_threads = 2, LogCount* log = nullptr,
             uint32_t cache_dtype = BLEND_DTYPE_AUTO);
Model open_model(const Ctx& ctx, const std::string& path, uint32_t weights = BLEND_WEIGHTS_AUTO);
// What opening says; the model, where there is one, goes to `out`.
Outcome try_open(const Ctx& ctx, const std::string& path, Model* out = nullptr);
Store open_store(const Ctx& ctx, const std::string& path, uint32_t kv_dtype = BLEND_DTYPE_F32);

struct FuseCase {
  uint32_t policy = BLEND_POLICY_HKVD;
  uint32_t metric = BLEND_METRIC_V;
  uint32_t check_layer = 1;
  double ratio = 0.15;
  uint32_t on_miss = BLEND_MISS_PRECOMPUTE;
  uint32_t reserve_tokens = 64;
  std::vector<int32_t> chunk_prefix = {};
  uint32_t norm = BLEND_NORM_L2;
  uint32_t relative = 0;
  uint64_t seed = 0;
  std::vector<blend_check_layer> check_layers = {};
  std::vector<blend_policy_term> terms = {};
  ReferenceScore score = {};  // of BLEND_POLICY_CALLBACK
  const blend_profile* profile = nullptr;
  uint32_t correction = BLEND_CORRECTION_AUTO;
  uint32_t on_untrusted = BLEND_ON_UNTRUSTED_FUSE;
  std::optional<ReferenceDrift> drift = {};  // what the profile is expected to do
  double ape_temperature = 0.9;
  double ape_scale = 0.9;
  uint32_t n_threads = 0;
  mutable blend_selection_options selection = {};  // filled in by options_of()
};
// What the case is, for a failing test.
std::ostream& operator<<(std::ostream& out, const FuseCase& how);

using Prompt = std::vector<ReferenceSegment>;

// As the ABI takes them; they point into what they were made of.
std::vector<blend_segment> segments_of(const Prompt& prompt);
blend_fuse_options options_of(const FuseCase& how);
blend_fuse_options options_of(FuseCase&& how) = delete;

struct Fused {
  Outcome outcome;
  Fusion fusion;
};
Fused try_fuse(const Model& model, const Store& store, const Prompt& prompt, const FuseCase& how);
// The same, with a test failure when it does not succeed.
Fusion fuse(const Model& model, const Store& store, const Prompt& prompt, const FuseCase& how);

// blend_fusion_extend; `cancel` may be null.
Outcome try_extend(const Fusion& fusion, const Store& store, const Prompt& prompt,
                   const FuseCase& how, const Cancel& cancel = nullptr);

// Stores a chunk and waits for it; a test failure when that fails. Returns the call's code.
int32_t precompute(const Model& model, const Store& store, const std::vector<int32_t>& tokens,
                   const std::vector<int32_t>& prefix = {}, blend_chunk_id* id = nullptr);
// Stores the PREFIX (each after those before it) and CHUNK segments of a prompt.
void precompute_all(const Model& model, const Store& store, const Prompt& prompt,
                    const std::vector<int32_t>& chunk_prefix);

std::vector<float> logits(const Fusion& fusion);
std::vector<float> deviation(const Fusion& fusion);
std::vector<uint32_t> selected(const Fusion& fusion);
blend_fusion_report info(const Fusion& fusion);
blend_segment_info segment_info(const Fusion& fusion, size_t segment);
blend_layer_info layer_info(const Fusion& fusion, uint32_t layer);
void decode(const Fusion& fusion, const std::vector<int32_t>& tokens);
void replace(const Fusion& fusion, uint64_t first, uint64_t n, const std::vector<int32_t>& tokens);
std::vector<int32_t> tokens_of(const Fusion& fusion);

// All tokens of a prompt in order.
std::vector<int32_t> flatten(const Prompt& prompt);
// max |a - b|; infinite when a value is not finite or the sizes differ.
double max_difference(const std::vector<float>& a, const std::vector<double>& b);
double max_difference(const std::vector<float>& a, const std::vector<float>& b);
std::vector<double> widen(const std::vector<float>& a);

}  // namespace blend::test
