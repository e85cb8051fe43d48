#include "calibrate/calibrate.h"

#include <algorithm>
#include <cstring>

#include "calibrate/codec_costs.h"
#include "calibrate/layer_steps.h"
#include "calibrate/sample_records.h"
#include "engine/precompute.h"
#include "fusion/resolve/trust.h"

namespace blend {
namespace {

// Fuses and prefills done, of all; the caller's progress.
class Progress {
 public:
  Progress(const Watch& watch, uint64_t total) : watch_(watch), total_(total) {}
  Status step() { return watch_.report(++done_, total_); }
  // Work that turned out not to be needed counts as done.
  Status finish() {
    while (done_ < total_) BLEND_RETURN_IF_ERROR(step());
    return Status::ok();
  }

 private:
  const Watch& watch_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

std::vector<int32_t> tokens_of(const Sample& sample) {
  std::vector<int32_t> out;
  for (const Segment& s : sample) out.insert(out.end(), s.tokens->begin(), s.tokens->end());
  return out;
}

float element(const std::byte* plane, size_t i, DType dtype) {
  if (dtype == DType::f32) {
    float f = 0;
    std::memcpy(&f, plane + 4 * i, sizeof f);
    return f;
  }
  uint16_t h = 0;
  std::memcpy(&h, plane + 2 * i, sizeof h);
  return dtype == DType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}

// K | V of the record's rows from layer `first` on, as f32: [layers][n_rows * 2 * kv_dim].
std::vector<std::vector<float>> rows_of(const ChunkRecord& record, uint32_t first) {
  const ChunkShape& shape = record.meta.shape;
  std::vector<std::vector<float>> out;
  for (uint32_t l = first; l < shape.n_layers; ++l) {
    std::vector<float>& rows = out.emplace_back();
    rows.reserve(shape.n_tokens * 2 * size_t{shape.kv_dim});
    for (uint32_t row = 0; row < shape.n_tokens; ++row) {
      for (const std::byte* const plane : {record.k(l), record.v(l)}) {
        const size_t at = row * size_t{shape.kv_dim};
        for (size_t e = at; e < at + shape.kv_dim; ++e)
          rows.push_back(element(plane, e, shape.dtype));
      }
    }
  }
  return out;
}

// The fits of one chunk prefix.
struct Fits {
  std::vector<DriftFit> check;  // one a check layer
  StoredFit stored;
};

// The sample's reused rows: fresh from a full prefill, stored as a store would have its chunks.
Status fit_sample(const Model& model, const Sample& sample, SampleRecords& records,
                  const std::vector<int32_t>& prefix, DType kv_dtype, Fits& fits,
                  const Watch& watch) {
  const Watch cancel_only{watch.cancel, {}};
  const size_t width = 2 * size_t{model.config().kv_dim()};
  constexpr uint32_t first_layer = 1;
  const std::vector<int32_t> all = tokens_of(sample);
  BLEND_ASSIGN(
      const auto full,
      precompute_chunk(model, {}, describe_chunk(model, DType::f32, {}, "", all), cancel_only));
  const auto fresh = rows_of(*full, first_layer);
  for (DriftFit& fit : fits.check) fit.begin_prompt();
  fits.stored.begin_prompt();
  size_t first_row = 0;
  for (const Segment& s : sample) {
    const std::vector<int32_t>& tokens = *s.tokens;
    const std::span<const int32_t> before(all.data(), first_row);
    // A chunk that follows its own chunk prefix is a prefix hit: it has no drift.
    const bool exact = std::equal(before.begin(), before.end(), prefix.begin(), prefix.end());
    if (s.kind == SegmentKind::chunk && !tokens.empty() && !exact) {
      BLEND_ASSIGN(auto chunk, records.record_of(tokens, first_row, prefix, kv_dtype, cancel_only));
      if (chunk == nullptr) {
        BLEND_ASSIGN(chunk, precompute_chunk(model, prefix,
                                             describe_chunk(model, kv_dtype, prefix, "", tokens),
                                             cancel_only));
      }
      const auto stored = rows_of(*chunk, first_layer);
      const std::vector<RowImpact>& impact = chunk->meta.impact;
      for (size_t row = 0; row < tokens.size(); ++row) {
        const auto fresh_at = [&](uint32_t l) {
          return &fresh[l - first_layer][(first_row + row) * width];
        };
        const auto stored_at = [&](uint32_t l) { return &stored[l - first_layer][row * width]; };
        for (DriftFit& fit : fits.check) fit.add(fresh_at, stored_at);
        fits.stored.add(
            StoredFeatures::of(impact[row].inside, impact[row].outside, static_cast<uint32_t>(row)),
            fresh_at, stored_at);
      }
    }
    first_row += tokens.size();
  }
  return Status::ok();
}

Status check_samples(const Model& model, const std::vector<Sample>& samples, size_t least) {
  if (samples.size() < least) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "%zu sample prompts are too few: give %zu or more",
                      samples.size(), least);
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::string name = "sample " + std::to_string(i);
    for (const Segment& s : samples[i]) {
      if (!s.tokens) {
        return {BLEND_E_INVALID_ARGUMENT, name + ": a chunk without tokens cannot be prefilled"};
      }
      BLEND_RETURN_IF_ERROR(model.check_tokens(*s.tokens, name));
    }
    const size_t n_tokens = tokens_of(samples[i]).size();
    if (n_tokens == 0) {
      return {BLEND_E_INVALID_ARGUMENT,
              name + ": it has no tokens; give at least one segment that is not empty"};
    }
    BLEND_RETURN_IF_ERROR(model.check_length(n_tokens, name));
  }
  return Status::ok();
}

Status check_ratios(const std::vector<double>& ratios) {
  for (const double ratio : ratios) {
    if (!(ratio >= 0 && ratio <= 1)) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "ratio %g must lie in [0, 1]", ratio);
    }
  }
  return Status::ok();
}

Status check_limits(uint32_t score_tokens, double max_kl, double min_top1) {
  if (score_tokens == 0) return {BLEND_E_INVALID_ARGUMENT, "score_tokens must be 1 or more"};
  if (!(max_kl >= 0)) return {BLEND_E_INVALID_ARGUMENT, "max_kl must be 0 or more"};
  if (!(min_top1 >= 0 && min_top1 <= 1)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "min_top1 %g must lie in [0, 1]", min_top1);
  }
  return Status::ok();
}

Status check_options(const Model& model, const CalibrateOptions& o) {
  const uint32_t n_layers = model.config().n_kept();
  if (o.prefixes.empty() || o.policies.empty() || o.check_layers.empty() || o.metrics.empty() ||
      o.ratios.empty()) {
    return {BLEND_E_INVALID_ARGUMENT,
            "give one chunk prefix, policy, check layer, metric and ratio at least"};
  }
  for (const uint32_t layer : o.check_layers) {
    if (layer >= 1 && layer < n_layers) continue;
    return make_error(BLEND_E_INVALID_ARGUMENT, "check_layer %u must lie in 1 .. %u for this model",
                      layer, n_layers - 1);
  }
  for (const auto& prefix : o.prefixes) {
    BLEND_RETURN_IF_ERROR(model.check_tokens(prefix, "chunk prefix"));
    BLEND_RETURN_IF_ERROR(model.check_length(prefix.size(), "chunk prefix"));
  }
  if (!(o.ridge >= 0) && o.ridge != kRidgeAuto) {
    return {BLEND_E_INVALID_ARGUMENT,
            "ridge must be 0 or more, or -1, which is chosen by cross-validation"};
  }
  BLEND_RETURN_IF_ERROR(check_ratios(o.ratios));
  return check_limits(o.score_tokens, o.max_kl, o.min_top1);
}

Measurement line_of(uint32_t prefix, uint32_t check_layer, const Setting& setting,
                    const Divergences& d) {
  Measurement m;
  m.prefix = prefix;
  m.policy = static_cast<uint32_t>(setting.policy);
  m.check_layer = check_layer;
  m.metric = setting.metric.code();
  m.corrected = setting.drift != nullptr;
  m.ratio = setting.ratio;
  m.kl_mean = d.kl_mean();
  m.kl_p95 = d.kl_p95();
  m.top1 = d.top1();
  m.n_positions = d.kl.size();
  m.kl_margin = d.kl_margin();
  m.top1_margin = d.top1_margin();
  m.flops = d.full_flops > 0 ? d.flops / d.full_flops : 0;
  return m;
}

// Measures all settings over samples[first], samples[first + step], ...
Status measure_all(const std::shared_ptr<const Model>& model, const std::vector<Sample>& samples,
                   size_t first, size_t step, const MeasureOptions& options, uint32_t prefix,
                   const std::vector<Setting>& settings, const MeasurementFn& report,
                   std::vector<Measurement>& table, Progress& progress, const Watch& watch) {
  std::vector<Divergences> results(settings.size());
  for (size_t i = first; i < samples.size(); i += step) {
    BLEND_RETURN_IF_ERROR(
        measure_sample(
            model, samples[i], options, settings, results, [&] { return progress.step(); }, watch)
            .with_context("sample " + std::to_string(i)));
  }
  for (size_t i = 0; i < settings.size(); ++i) {
    table.push_back(line_of(prefix, options.check_layer, settings[i], results[i]));
    if (report) BLEND_RETURN_IF_ERROR(report(table.back()));
  }
  return Status::ok();
}

// Chooses the setting that keeps the limits at the least FLOPs; among those that cost at most half
// as much again, the one with the least KL, which is what the correction is for. If none keeps
// them, the one with the least KL at the greatest ratio, and ratio 1.
void choose(const CalibrateOptions& options, Profile& p) {
  constexpr double kAsCheap = 1.5;
  const double greatest = *std::max_element(options.ratios.begin(), options.ratios.end());
  std::vector<const Measurement*> kept, others;
  double cheapest = 0;
  for (const Measurement& m : p.table) {
    const double least = least_trusted_ratio(p.table, kind_of(m), options.max_kl, options.min_top1);
    if (least < 0 && m.ratio == greatest) others.push_back(&m);
    if (least != m.ratio) continue;
    if (kept.empty() || m.flops < cheapest) cheapest = m.flops;
    kept.push_back(&m);
  }
  const Measurement* best = nullptr;
  p.trusted = !kept.empty();
  for (const Measurement* const m : p.trusted ? kept : others) {
    if (p.trusted && m->flops > kAsCheap * cheapest) continue;
    if (best == nullptr || m->kl_mean < best->kl_mean) best = m;
  }
  p.ratio = p.trusted ? best->ratio : 1;
  p.prefix = best->prefix;
  p.policy = best->policy;
  p.metric = best->metric;
  p.check_layer = best->check_layer;
  p.corrected = best->corrected;
}

// Whether every sample has a question, which some policies need.
bool all_ask(const std::vector<Sample>& samples) {
  return std::all_of(samples.begin(), samples.end(), [](const Sample& sample) {
    const Segment& last = sample.back();
    return last.kind == SegmentKind::question && last.tokens && !last.tokens->empty();
  });
}

// The settings to measure for one chunk prefix and check layer: plain, and with `corrects` by
// `maps` too.
std::vector<Setting> settings_of(const CalibrateOptions& options,
                                 const std::vector<Policy>& policies, bool corrects,
                                 const ProfileMaps& maps) {
  std::vector<Setting> out;
  for (const Policy policy : policies) {
    if (policy == Policy::attention) {  // measures no deviation, so there is nothing to correct by
      for (const double ratio : options.ratios) out.push_back({policy, kAttentionMetric, ratio});
      continue;
    }
    std::vector<uint32_t> seen;
    for (const RowMetric metric : options.metrics) {
      // The cascade applies its own weights.
      const RowMetric used = {metric.of, metric.weighed || policy == Policy::cascade};
      if (std::find(seen.begin(), seen.end(), used.code()) != seen.end()) continue;
      seen.push_back(used.code());
      for (const double ratio : options.ratios) out.push_back({policy, used, ratio});
      for (const double ratio : options.ratios) {
        if (!corrects) break;
        out.push_back(
            {policy, used, ratio, maps.check, policy == Policy::cascade ? maps.stored : nullptr});
      }
    }
  }
  return out;
}

uint32_t stored_rank(const CalibrateOptions& options, uint32_t kv_dim) {
  if (options.stored_rank > 0) return options.stored_rank;
  return std::clamp(kv_dim / 4, 1u, 64u);
}

}  // namespace

Result<Profile> calibrate(const std::shared_ptr<const Model>& model,
                          const std::vector<Sample>& samples, const CalibrateOptions& options,
                          const Watch& watch) {
  const ModelConfig& config = model->config();
  BLEND_RETURN_IF_ERROR(check_options(*model, options));
  const auto first_check =
      *std::min_element(options.check_layers.begin(), options.check_layers.end());
  // Nothing is left to correct after the last layer, and attention measures nothing to correct by.
  const bool measures = std::any_of(options.policies.begin(), options.policies.end(),
                                    [](Policy policy) { return policy != Policy::attention; });
  // The maps are of K and V of one width, which not every layer may have.
  const bool corrects = options.corrects && measures && first_check + 1 < config.n_kept() &&
                        !config.mixer.any() && !config.attends_unlike();
  BLEND_RETURN_IF_ERROR(check_samples(*model, samples, corrects ? 2 : 1));
  const size_t step = corrects ? 2 : 1, first = corrects ? 1 : 0;
  std::vector<Policy> policies = options.policies;
  if (!all_ask(samples) || config.n_kept() <= 1) {
    std::erase_if(policies, [](Policy policy) { return policy != Policy::hkvd; });
  }
  if (policies.empty()) {
    return Status{
        BLEND_E_INVALID_ARGUMENT,
        "BLEND_POLICY_CASCADE and BLEND_POLICY_ATTENTION ask what the question attends to: "
        "end every sample with a question segment"};
  }

  Profile p;
  p.fingerprint = model->fingerprint();
  p.n_layers = config.n_kept();
  p.kv_dim = config.kv_dim();
  p.kv_dtype = options.kv_dtype;
  p.prefixes = options.prefixes;
  p.max_kl = options.max_kl;
  p.min_top1 = options.min_top1;
  p.n_fitted = corrects ? (samples.size() + 1) / 2 : 0;
  p.n_measured = corrects ? samples.size() / 2 : samples.size();
  p.n_contexts = options.n_contexts;
  BLEND_ASSIGN(const auto records, SampleRecords::create(*model, samples, options.n_contexts));

  const auto has_maps = [&](uint32_t check_layer) {
    return corrects && check_layer + 1 < config.n_kept();
  };
  uint64_t n_runs = options.prefixes.size() * p.n_fitted;
  for (const uint32_t layer : options.check_layers) {
    const size_t n = settings_of(options, policies, has_maps(layer), {}).size();
    n_runs += options.prefixes.size() * p.n_measured * (1 + n);
  }
  const StepPrompts step_prompts(samples.size(), options.step_samples);
  n_runs += step_prompts.n_runs(config.n_kept(), 2);
  const uint64_t n_judged = std::min<uint64_t>(p.n_measured, options.codec_samples);
  n_runs += n_judged * codec_runs();
  Progress progress(watch, n_runs);
  std::vector<std::vector<DriftMaps>> check_maps(options.prefixes.size());
  std::vector<DriftMaps> stored_maps(options.prefixes.size());
  for (uint32_t i = 0; i < options.prefixes.size(); ++i) {
    ThreadPool& pool = model->runtime().pool();
    Fits fits{{}, {pool, config.kv_dim(), corrects ? config.n_kept() : 1}};
    for (const uint32_t layer : options.check_layers) {
      if (has_maps(layer)) {
        fits.check.emplace_back(pool, options.inputs, config.kv_dim(), layer, config.n_kept());
      }
    }
    for (size_t s = 0; corrects && s < samples.size(); s += 2) {
      BLEND_RETURN_IF_ERROR(fit_sample(*model, samples[s], *records, options.prefixes[i],
                                       options.kv_dtype, fits, watch)
                                .with_context("sample " + std::to_string(s)));
      BLEND_RETURN_IF_ERROR(progress.step());
    }
    ProfileMaps maps;
    if (corrects) {
      const uint32_t rank = stored_rank(options, config.kv_dim());
      BLEND_ASSIGN(stored_maps[i], fits.stored.solve(options.ridge, rank, watch));
      BLEND_ASSIGN(maps.stored, Drift::load(model->backend(), stored_maps[i]));
    }
    size_t fitted = 0;
    for (const uint32_t layer : options.check_layers) {
      DriftMaps& of_layer = check_maps[i].emplace_back();
      maps.check = nullptr;
      if (has_maps(layer)) {
        BLEND_ASSIGN(of_layer, fits.check[fitted++].solve(options.ridge, options.rank, watch));
        BLEND_ASSIGN(maps.check, Drift::load(model->backend(), of_layer));
      }
      const MeasureOptions how{options.prefixes[i], layer, options.kv_dtype, options.score_tokens,
                               records.get()};
      BLEND_RETURN_IF_ERROR(measure_all(model, samples, first, step, how, i,
                                        settings_of(options, policies, has_maps(layer), maps),
                                        options.on_measurement, p.table, progress, watch));
    }
  }
  choose(options, p);
  const auto chosen =
      std::find(options.check_layers.begin(), options.check_layers.end(), p.check_layer);
  p.drift =
      std::move(check_maps[p.prefix][static_cast<size_t>(chosen - options.check_layers.begin())]);
  if (!p.drift.empty()) p.stored_drift = std::move(stored_maps[p.prefix]);
  StepOptions steps{step_prompts, p.chunk_prefix(), options.kv_dtype};
  steps.records = records.get();
  // As the profile fuses, except for the correction, which does not change rounding's effect. Where
  // everything is recomputed, rounding has no effect.
  if (p.ratio < 1) {
    steps.way = {static_cast<Policy>(p.policy), RowMetric::from_code(p.metric), p.ratio};
    steps.check_layer = p.check_layer;
  }
  steps.score_tokens = std::min(steps.score_tokens, options.score_tokens);
  BLEND_ASSIGN(p.layer_steps, find_layer_steps(
                                  model, samples, steps, [&] { return progress.step(); }, watch));
  if (steps.way.has_value()) {
    std::vector<const Sample*> judged;
    for (size_t i = first; judged.size() < n_judged; i += step) judged.push_back(&samples[i]);
    const CodecTrialOptions trial{p.chunk_prefix(),  options.kv_dtype,   *steps.way,
                                  steps.check_layer, steps.score_tokens, p.layer_steps.factors,
                                  records.get()};
    BLEND_ASSIGN(p.codec_costs, find_codec_costs(
                                    model, judged, trial, [&] { return progress.step(); }, watch));
  }
  BLEND_RETURN_IF_ERROR(progress.finish());
  return p;
}

Result<Verdict> verify(const std::shared_ptr<const Model>& model, const Profile& profile,
                       const ProfileMaps& maps, const std::vector<Sample>& samples,
                       const VerifyOptions& options, const Watch& watch) {
  BLEND_RETURN_IF_ERROR(check_profile(profile, *model));
  BLEND_RETURN_IF_ERROR(check_samples(*model, samples, 1));
  BLEND_RETURN_IF_ERROR(check_ratios(options.ratios));
  BLEND_RETURN_IF_ERROR(check_limits(options.score_tokens, options.max_kl, options.min_top1));
  std::vector<double> ratios = options.ratios;
  ratios.push_back(profile.ratio);
  std::sort(ratios.begin(), ratios.end());
  ratios.erase(std::unique(ratios.begin(), ratios.end()), ratios.end());

  std::vector<Setting> settings;
  settings.reserve(ratios.size());
  for (const double ratio : ratios) {
    settings.push_back({static_cast<Policy>(profile.policy), RowMetric::from_code(profile.metric),
                        ratio, profile.corrected ? maps.check : nullptr,
                        profile.corrected ? maps.stored : nullptr});
  }
  Verdict verdict;
  Progress progress(watch, samples.size() * (1 + settings.size()));
  BLEND_ASSIGN(const auto records, SampleRecords::create(*model, samples, profile.n_contexts));
  const MeasureOptions how{profile.chunk_prefix(), profile.check_layer, profile.kv_dtype,
                           options.score_tokens, records.get()};
  BLEND_RETURN_IF_ERROR(measure_all(model, samples, 0, 1, how, profile.prefix, settings,
                                    options.on_measurement, verdict.table, progress, watch));
  verdict.least_ratio =
      least_trusted_ratio(verdict.table, profile.kind(), options.max_kl, options.min_top1);
  for (const Measurement& m : verdict.table) {
    if (m.ratio == profile.ratio) verdict.at_ratio = m;
  }
  verdict.trusted = verdict.at_ratio.keeps(options.max_kl, options.min_top1);
  return verdict;
}

}  // namespace blend
