#include "calibrate/calibrate.h"

#include <algorithm>
#include <cstring>

#include "calibrate/drift_fit.h"
#include "engine/precompute.h"
#include "fusion/trust.h"

namespace blend {
namespace {

// Fuses and prefills done, of all; the caller's progress.
class Progress {
 public:
  Progress(const Watch& watch, uint64_t total) : watch_(watch), total_(total) {}
  Status step() { return watch_.report(++done_, total_); }

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

// The sample's reused rows: fresh from a full prefill, stored from its chunks prefilled alone.
Status fit_sample(const Model& model, const Sample& sample, const std::vector<int32_t>& prefix,
                  DType kv_dtype, DriftFit& fit, const Watch& watch) {
  const Watch cancel_only{watch.cancel, {}};
  const size_t width = 2 * size_t{model.config().kv_dim()};
  const uint32_t first_layer = fit.check_layer();
  const std::vector<int32_t> all = tokens_of(sample);
  BLEND_ASSIGN(
      const auto full,
      precompute_chunk(model, {}, describe_chunk(model, DType::f32, {}, "", all), cancel_only));
  const auto fresh = rows_of(*full, first_layer);
  size_t first_row = 0;
  for (const Segment& s : sample) {
    const std::vector<int32_t>& tokens = *s.tokens;
    const std::span<const int32_t> before(all.data(), first_row);
    // A chunk that stands behind its own chunk prefix is exact: it has no drift.
    const bool exact = std::equal(before.begin(), before.end(), prefix.begin(), prefix.end());
    if (s.kind == SegmentKind::chunk && !tokens.empty() && !exact) {
      BLEND_ASSIGN(
          const auto chunk,
          precompute_chunk(model, prefix, describe_chunk(model, kv_dtype, prefix, "", tokens),
                           cancel_only));
      const auto stored = rows_of(*chunk, first_layer);
      for (size_t row = 0; row < tokens.size(); ++row) {
        fit.add([&](uint32_t l) { return &fresh[l - first_layer][(first_row + row) * width]; },
                [&](uint32_t l) { return &stored[l - first_layer][row * width]; });
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
  const uint32_t n_layers = model.config().n_layers;
  if (o.check_layer < 1 || o.check_layer >= n_layers) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "check_layer %u must lie in 1 .. %u for this model",
                      o.check_layer, n_layers - 1);
  }
  if (o.prefixes.empty() || o.metrics.empty() || o.ratios.empty()) {
    return {BLEND_E_INVALID_ARGUMENT, "give one chunk prefix, metric and ratio at least"};
  }
  for (const auto& prefix : o.prefixes) {
    BLEND_RETURN_IF_ERROR(model.check_tokens(prefix, "chunk prefix"));
    BLEND_RETURN_IF_ERROR(model.check_length(prefix.size(), "chunk prefix"));
  }
  if (!(o.ridge >= 0)) return {BLEND_E_INVALID_ARGUMENT, "ridge must be 0 or more"};
  BLEND_RETURN_IF_ERROR(check_ratios(o.ratios));
  return check_limits(o.score_tokens, o.max_kl, o.min_top1);
}

Measurement line_of(uint32_t prefix, const Setting& setting, const Divergences& d) {
  Measurement m;
  m.prefix = prefix;
  m.metric = setting.metric.code();
  m.corrected = setting.drift != nullptr;
  m.ratio = setting.ratio;
  m.kl_mean = d.kl_mean();
  m.kl_p95 = d.kl_p95();
  m.top1 = d.top1();
  m.n_positions = d.kl.size();
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
    table.push_back(line_of(prefix, settings[i], results[i]));
    if (report) BLEND_RETURN_IF_ERROR(report(table.back()));
  }
  return Status::ok();
}

double kl_at(const Profile& p, const Measurement& like, double ratio) {
  for (const Measurement& m : p.table) {
    if (m.prefix == like.prefix && m.metric == like.metric && m.corrected == like.corrected &&
        m.ratio == ratio) {
      return m.kl_mean;
    }
  }
  return 0;
}

// The kind of fusing that keeps the limits at the least ratio, of equals that with the least KL
// there; where none keeps them, that with the least KL at the greatest ratio, and ratio 1.
void choose(const CalibrateOptions& options, Profile& p) {
  const double greatest = *std::max_element(options.ratios.begin(), options.ratios.end());
  bool any = false;
  double best_ratio = 0, best_kl = 0;
  for (const Measurement& m : p.table) {
    const double least = least_trusted_ratio(p.table, m.prefix, m.metric, m.corrected,
                                             options.max_kl, options.min_top1);
    const bool trusted = least >= 0;
    const double ratio = trusted ? least : 1;
    const double kl = kl_at(p, m, trusted ? least : greatest);
    const bool better = !any || (trusted != p.trusted  ? trusted
                                 : ratio != best_ratio ? ratio < best_ratio
                                                       : kl < best_kl);
    if (!better) continue;
    any = true;
    best_ratio = ratio;
    best_kl = kl;
    p.trusted = trusted;
    p.ratio = ratio;
    p.prefix = m.prefix;
    p.metric = m.metric;
    p.corrected = m.corrected;
  }
}

}  // namespace

Result<Profile> calibrate(const std::shared_ptr<const Model>& model,
                          const std::vector<Sample>& samples, const CalibrateOptions& options,
                          const Watch& watch) {
  const ModelConfig& config = model->config();
  BLEND_RETURN_IF_ERROR(check_options(*model, options));
  // Behind the last layer there is nothing to correct.
  const bool corrects = options.corrects && options.check_layer + 1 < config.n_layers;
  BLEND_RETURN_IF_ERROR(check_samples(*model, samples, corrects ? 2 : 1));
  const size_t step = corrects ? 2 : 1, first = corrects ? 1 : 0;

  Profile p;
  p.fingerprint = model->fingerprint();
  p.n_layers = config.n_layers;
  p.kv_dim = config.kv_dim();
  p.kv_dtype = options.kv_dtype;
  p.prefixes = options.prefixes;
  p.check_layer = options.check_layer;
  p.max_kl = options.max_kl;
  p.min_top1 = options.min_top1;
  p.n_fitted = corrects ? (samples.size() + 1) / 2 : 0;
  p.n_measured = corrects ? samples.size() / 2 : samples.size();

  const size_t n_settings = options.metrics.size() * options.ratios.size() * (corrects ? 2 : 1);
  Progress progress(watch,
                    options.prefixes.size() * (p.n_fitted + p.n_measured * (1 + n_settings)));
  std::vector<DriftMaps> maps;
  for (uint32_t i = 0; i < options.prefixes.size(); ++i) {
    std::shared_ptr<const Drift> drift;
    if (corrects) {
      DriftFit fit(model->runtime().pool(), options.inputs, config.kv_dim(), options.check_layer,
                   config.n_layers);
      for (size_t s = 0; s < samples.size(); s += 2) {
        BLEND_RETURN_IF_ERROR(
            fit_sample(*model, samples[s], options.prefixes[i], options.kv_dtype, fit, watch)
                .with_context("sample " + std::to_string(s)));
        BLEND_RETURN_IF_ERROR(progress.step());
      }
      BLEND_ASSIGN(DriftMaps fitted, fit.solve(options.ridge, options.rank, watch));
      BLEND_ASSIGN(drift, Drift::load(model->backend(), fitted));
      maps.push_back(std::move(fitted));
    }
    std::vector<Setting> settings;
    for (const RowMetric metric : options.metrics) {
      for (const double ratio : options.ratios) settings.push_back({metric, ratio, nullptr});
      for (const double ratio : options.ratios) {
        if (corrects) settings.push_back({metric, ratio, drift});
      }
    }
    const MeasureOptions how{options.prefixes[i], options.check_layer, options.kv_dtype,
                             options.score_tokens};
    BLEND_RETURN_IF_ERROR(measure_all(model, samples, first, step, how, i, settings,
                                      options.on_measurement, p.table, progress, watch));
  }
  choose(options, p);
  if (corrects) p.drift = std::move(maps[p.prefix]);
  return p;
}

Result<Verdict> verify(const std::shared_ptr<const Model>& model, const Profile& profile,
                       const std::shared_ptr<const Drift>& drift,
                       const std::vector<Sample>& samples, const VerifyOptions& options,
                       const Watch& watch) {
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
    settings.push_back(
        {RowMetric::from_code(profile.metric), ratio, profile.corrected ? drift : nullptr});
  }
  Verdict verdict;
  Progress progress(watch, samples.size() * (1 + settings.size()));
  const MeasureOptions how{profile.chunk_prefix(), profile.check_layer, profile.kv_dtype,
                           options.score_tokens};
  BLEND_RETURN_IF_ERROR(measure_all(model, samples, 0, 1, how, profile.prefix, settings,
                                    options.on_measurement, verdict.table, progress, watch));
  verdict.least_ratio = least_trusted_ratio(verdict.table, profile.prefix, profile.metric,
                                            profile.corrected, options.max_kl, options.min_top1);
  for (const Measurement& m : verdict.table) {
    if (m.ratio == profile.ratio) verdict.at_ratio = m;
  }
  verdict.trusted =
      verdict.at_ratio.kl_mean <= options.max_kl && verdict.at_ratio.top1 >= options.min_top1;
  return verdict;
}

}  // namespace blend
