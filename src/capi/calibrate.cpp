#include "calibrate/calibrate.h"

#include <algorithm>

#include "capi/error.h"
#include "capi/fuse_call.h"
#include "capi/handles.h"
#include "capi/measurement.h"
#include "capi/selection.h"
#include "capi/structs.h"

using blend::Result;
using blend::Status;

namespace {

blend_calibrate_options default_calibrate_options() {
  const blend::CalibrateOptions defaults;
  blend_calibrate_options o{};
  o.struct_size = sizeof o;
  o.check_layer = defaults.check_layers.front();
  o.kv_dtype = BLEND_DTYPE_AUTO;
  o.drift_inputs = BLEND_DRIFT_DEVIATION | (defaults.inputs.fresh ? BLEND_DRIFT_FRESH : 0u) |
                   (defaults.inputs.constant ? BLEND_DRIFT_CONSTANT : 0u);
  o.drift_rank = defaults.rank;
  static_assert(blend::kRidgeAuto == BLEND_RIDGE_AUTO);
  o.ridge = defaults.ridge;
  o.score_tokens = defaults.score_tokens;
  o.max_kl = defaults.max_kl;
  o.min_top1 = defaults.min_top1;
  o.step_samples = defaults.step_samples;
  return o;
}

blend_verify_options default_verify_options() {
  blend_verify_options o{};
  o.struct_size = sizeof o;
  o.score_tokens = blend::VerifyOptions().score_tokens;
  o.max_kl = -1;
  o.min_top1 = -1;
  return o;
}

Result<std::vector<blend::Sample>> read_samples(const blend_sample* samples, size_t n,
                                                const blend::Model& model) {
  std::vector<blend::Sample> out;
  BLEND_RETURN_IF_ERROR(blend::capi::check_elements(samples, n, "sample"));
  for (size_t i = 0; i < n; ++i) {
    const std::string name = "sample " + std::to_string(i);
    blend_sample copy{};
    if (Status s = blend::capi::read_struct(blend::capi::element(samples, i), copy); !s.is_ok())
      return s.with_context(name);
    if (copy.n_segments > 0 && copy.segments == nullptr) {
      return blend::capi::null_argument("segments").with_context(name);
    }
    auto segments = blend::capi::read_segments(copy.segments, copy.n_segments, model);
    if (!segments.is_ok()) return segments.status().with_context(name);
    out.push_back(std::move(*segments));
  }
  return out;
}

blend::MeasurementFn report_to(blend_measurement_fn fn, void* user,
                               const std::vector<std::vector<int32_t>>& prefixes) {
  if (fn == nullptr) return {};
  return [fn, user, &prefixes](const blend::Measurement& m) -> Status {
    const blend_measurement line = blend::capi::describe(m, prefixes[m.prefix]);
    if (const int32_t rc = fn(user, &line); rc != 0) {
      return {BLEND_E_CALLBACK, "the measurement callback asked to stop", rc};
    }
    return Status::ok();
  };
}

// Each multiplies the work: nobody means more.
Status check_choices(const char* name, size_t n) {
  constexpr size_t kMost = 4096;
  if (n <= kMost) return Status::ok();
  return blend::make_error(BLEND_E_INVALID_ARGUMENT, "%s %zu is more than %zu", name, n, kMost);
}

Result<std::vector<double>> read_ratios(const double* ratios, size_t n) {
  BLEND_RETURN_IF_ERROR(check_choices("n_ratios", n));
  if (n == 0) return blend::CalibrateOptions().ratios;
  if (ratios == nullptr) return blend::capi::null_argument("ratios");
  return std::vector<double>(ratios, ratios + n);
}

// The prompt head of the samples, which is what chunks are stored after by default; where they have
// several, none, and BOS where the model has one.
std::vector<std::vector<int32_t>> usual_prefixes(const std::vector<blend::Sample>& samples,
                                                 const blend::Model& model) {
  std::vector<int32_t> head;
  if (!samples.empty()) head = blend::prompt_head(samples.front());
  const bool shared = std::all_of(samples.begin(), samples.end(), [&](const blend::Sample& sample) {
    return blend::prompt_head(sample) == head;
  });
  if (shared && !head.empty()) return {std::move(head)};
  std::vector<std::vector<int32_t>> out = {{}};
  if (model.tokenizer().bos() >= 0) out.push_back({model.tokenizer().bos()});
  return out;
}

Result<blend::CalibrateOptions> read_options(const blend_calibrate_options& o,
                                             const std::vector<blend::Sample>& samples,
                                             const blend::Model& model) {
  blend::CalibrateOptions out;
  BLEND_RETURN_IF_ERROR(check_choices("n_chunk_prefixes", o.n_chunk_prefixes));
  BLEND_RETURN_IF_ERROR(check_choices("n_metrics", o.n_metrics));
  BLEND_RETURN_IF_ERROR(check_choices("n_policies", o.n_policies));
  BLEND_RETURN_IF_ERROR(check_choices("n_check_layers", o.n_check_layers));
  if (o.n_policies > 0) {
    BLEND_REQUIRE(o.policies);
    out.policies.clear();
    for (const uint32_t policy : std::span(o.policies, o.n_policies)) {
      const auto calibrated = [](const blend::PolicyEntry& e) {
        return e.has(blend::policy_table::kCalibrated);
      };
      const blend::PolicyEntry* const entry = blend::find_policy(policy);
      if (entry == nullptr || !calibrated(*entry)) {
        return blend::make_error(BLEND_E_INVALID_ARGUMENT, "policy %u: %s are calibrated", policy,
                                 blend::policy_list(calibrated, " and ", "BLEND_POLICY_").c_str());
      }
      out.policies.push_back(static_cast<blend::Policy>(policy));
    }
  }
  out.check_layers = {o.check_layer};
  if (o.n_check_layers > 0) {
    BLEND_REQUIRE(o.check_layers);
    out.check_layers.assign(o.check_layers, o.check_layers + o.n_check_layers);
  }
  out.prefixes = usual_prefixes(samples, model);
  if (o.n_chunk_prefixes > 0) {
    BLEND_REQUIRE(o.chunk_prefixes);
    out.prefixes.clear();
    for (size_t i = 0; i < o.n_chunk_prefixes; ++i) {
      const blend_token_list& list = o.chunk_prefixes[i];
      if (list.n_tokens > 0 && list.tokens == nullptr) return blend::capi::null_argument("tokens");
      BLEND_RETURN_IF_ERROR(model.check_length(list.n_tokens, "chunk prefix"));
      out.prefixes.emplace_back(list.tokens, list.tokens + list.n_tokens);
    }
  }
  if (o.n_metrics > 0) {
    BLEND_REQUIRE(o.metrics);
    out.metrics.clear();
    for (size_t i = 0; i < o.n_metrics; ++i) {
      BLEND_RETURN_IF_ERROR(blend::capi::check_metric(o.metrics[i]));
      out.metrics.push_back(blend::RowMetric::from_code(o.metrics[i]));
    }
  }
  BLEND_ASSIGN(out.ratios, read_ratios(o.ratios, o.n_ratios));
  if (o.kv_dtype > BLEND_DTYPE_BF16) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "kv_dtype %u is not one of 0 .. %u",
                             o.kv_dtype, BLEND_DTYPE_BF16);
  }
  out.kv_dtype = blend::capi::resolve_kv_dtype(o.kv_dtype, model);
  if (o.correction > BLEND_CORRECTION_ON) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "correction %u is not one of 0 .. %u",
                             o.correction, BLEND_CORRECTION_ON);
  }
  constexpr uint32_t kInputs = BLEND_DRIFT_DEVIATION | BLEND_DRIFT_FRESH | BLEND_DRIFT_CONSTANT;
  out.corrects = o.correction != BLEND_CORRECTION_OFF;
  if (out.corrects &&
      ((o.drift_inputs & ~kInputs) != 0 || (o.drift_inputs & BLEND_DRIFT_DEVIATION) == 0)) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "drift_inputs 0x%x: BLEND_DRIFT_DEVIATION must be among them, and no "
                             "unknown bit",
                             o.drift_inputs);
  }
  out.inputs.fresh = (o.drift_inputs & BLEND_DRIFT_FRESH) != 0;
  out.inputs.constant = (o.drift_inputs & BLEND_DRIFT_CONSTANT) != 0;
  out.step_samples = o.step_samples;
  if (o.n_contexts > BLEND_MOST_CONTEXTS) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "n_contexts %u is more than %u",
                             o.n_contexts, BLEND_MOST_CONTEXTS);
  }
  out.n_contexts = o.n_contexts;
  out.rank = o.drift_rank;
  out.ridge = o.ridge;
  out.score_tokens = o.score_tokens;
  out.max_kl = o.max_kl;
  out.min_top1 = o.min_top1;
  return out;
}

}  // namespace

extern "C" {

int32_t blend_calibrate_options_init(blend_calibrate_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_calibrate_options());
}

int32_t blend_verify_options_init(blend_verify_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_verify_options());
}

int32_t blend_calibrate(const blend_model* model, const blend_sample* samples, size_t n_samples,
                        const blend_calibrate_options* options, const char* path,
                        blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(model);
    if (n_samples > 0) BLEND_REQUIRE(samples);
    blend_calibrate_options o = default_calibrate_options();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    BLEND_ASSIGN(const auto loaded, model->fusible());
    BLEND_ASSIGN(const auto list, read_samples(samples, n_samples, *loaded));
    BLEND_ASSIGN(blend::CalibrateOptions how, read_options(o, list, *loaded));
    how.on_measurement = report_to(o.on_measurement, o.measurement_user, how.prefixes);
    BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
    const blend::ThreadCap cap(o.n_threads);
    BLEND_ASSIGN(const blend::Profile profile,
                 blend::calibrate(loaded, list, how,
                                  blend::capi::make_watch(o.cancel, o.progress, o.progress_user)));
    BLEND_RETURN_IF_ERROR(blend::write_profile(profile, model->profile_path(path)));
    return profile.trusted ? int32_t{BLEND_OK} : int32_t{BLEND_BELOW_LIMITS};
  });
}

int32_t blend_verify(const blend_model* model, const blend_profile* profile,
                     const blend_sample* samples, size_t n_samples,
                     const blend_verify_options* options, blend_verdict* verdict,
                     blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(profile);
    if (n_samples > 0) BLEND_REQUIRE(samples);
    blend_verify_options o = default_verify_options();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    blend_verdict said{};
    if (verdict != nullptr) BLEND_RETURN_IF_ERROR(blend::capi::write_struct(verdict, said));
    BLEND_ASSIGN(const auto loaded, model->fusible());
    const blend::Profile& p = profile->profile;
    blend::VerifyOptions how;
    BLEND_ASSIGN(how.ratios, read_ratios(o.ratios, o.n_ratios));
    how.score_tokens = o.score_tokens;
    how.max_kl = o.max_kl < 0 ? p.max_kl : o.max_kl;
    how.min_top1 = o.min_top1 < 0 ? p.min_top1 : o.min_top1;
    how.on_measurement = report_to(o.on_measurement, o.measurement_user, p.prefixes);
    BLEND_ASSIGN(const auto list, read_samples(samples, n_samples, *loaded));
    BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
    const blend::ThreadCap cap(o.n_threads);
    BLEND_ASSIGN(const blend::Verdict found,
                 blend::verify(loaded, p, {profile->drift, profile->stored_drift}, list, how,
                               blend::capi::make_watch(o.cancel, o.progress, o.progress_user)));
    // A profile that trusts no ratio asks for full prefill, which keeps every limit.
    const bool trusted = p.trusted && found.trusted;
    said.trusted = trusted ? 1 : 0;
    said.ratio = p.ratio;
    said.kl_mean = found.at_ratio.kl_mean;
    said.top1 = found.at_ratio.top1;
    said.least_ratio = found.least_ratio;
    if (verdict != nullptr) BLEND_RETURN_IF_ERROR(blend::capi::write_struct(verdict, said));
    return trusted ? int32_t{BLEND_OK} : int32_t{BLEND_BELOW_LIMITS};
  });
}

}  // extern "C"
