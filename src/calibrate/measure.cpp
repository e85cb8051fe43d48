#include "calibrate/measure.h"

#include <algorithm>
#include <cmath>

#include "calibrate/memory_store.h"
#include "calibrate/sample_records.h"

namespace blend {
namespace {

// log of the sum of exponentials.
double log_sum(std::span<const float> logits) {
  const auto top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - top);
  return top + std::log(sum);
}

// Half the 95 % interval of sum(value) / sum(n), the prompts being a random sample (the linearised
// variance of a ratio).
template <typename Value>
double half_interval(std::span<const Divergences::Sums> prompts, const Value& value) {
  double sum = 0, n = 0, squares = 0;
  for (const Divergences::Sums& p : prompts) {
    sum += value(p);
    n += static_cast<double>(p.n_positions);
  }
  const auto k = static_cast<double>(prompts.size());
  if (k < 2 || n == 0) return 0;
  for (const Divergences::Sums& p : prompts) {
    const double left = value(p) - sum / n * static_cast<double>(p.n_positions);
    squares += left * left;
  }
  return 1.96 * std::sqrt(squares * k / (k - 1)) / n;
}

}  // namespace

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double kl_divergence(std::span<const float> p, std::span<const float> q) {
  const double p_sum = log_sum(p), q_sum = log_sum(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - p_sum;
    kl += std::exp(log_p) * (log_p - (static_cast<double>(q[i]) - q_sum));
  }
  return std::max(kl, 0.0);  // rounding may leave -1e-17
}

double Divergences::kl_mean() const {
  double sum = 0;
  for (const double k : kl) sum += k;
  return kl.empty() ? 0 : sum / static_cast<double>(kl.size());
}

double Divergences::kl_p95() const {
  if (kl.empty()) return 0;
  std::vector<double> sorted = kl;
  std::sort(sorted.begin(), sorted.end());
  const double place = 0.95 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double Divergences::top1() const {
  return kl.empty() ? 0 : static_cast<double>(n_agree) / static_cast<double>(kl.size());
}

void Divergences::end_prompt() {
  Sums sums{0, n_agree, 0};
  size_t first = 0;
  for (const Sums& p : prompts) {
    first += p.n_positions;
    sums.n_agree -= p.n_agree;
  }
  sums.n_positions = kl.size() - first;
  for (size_t i = first; i < kl.size(); ++i) sums.kl += kl[i];
  prompts.push_back(sums);
}

double Divergences::kl_margin() const {
  return half_interval(prompts, [](const Sums& p) { return p.kl; });
}

double Divergences::top1_margin() const {
  return half_interval(prompts, [](const Sums& p) { return static_cast<double>(p.n_agree); });
}

Status measure_sample(const std::shared_ptr<const Model>& model, const Sample& sample,
                      const MeasureOptions& options, std::span<const Setting> settings,
                      std::span<Divergences> out, const std::function<Status()>& done,
                      const Watch& watch) {
  const Watch cancel_only{watch.cancel, {}};
  FuseRequest request{sample, {}, cancel_only};
  FuseOptions& fuse_options = request.options;
  fuse_options.policy = Policy::full;
  fuse_options.reserve_tokens = options.score_tokens;
  fuse_options.chunk_prefix = options.chunk_prefix;
  fuse_options.check_layer = options.check_layer;

  std::vector<std::vector<float>> reference;  // a row of logits a position
  std::vector<int32_t> answer;
  double full_flops = 0;
  {
    BLEND_ASSIGN(Fused full, fuse(model, {}, request));
    Sequence& sequence = *full.sequence;
    full_flops = full.info.flops;
    reference.push_back(sequence.logits());
    while (reference.size() < options.score_tokens && sequence.n_rows() < sequence.capacity()) {
      const int32_t next = likeliest(reference.back());
      if (next == model->tokenizer().eos()) break;
      answer.push_back(next);
      BLEND_RETURN_IF_ERROR(sequence.append({&next, 1}, cancel_only));
      reference.push_back(sequence.logits());
    }
  }
  BLEND_RETURN_IF_ERROR(done());

  // The first fuse puts the prompt's chunks here, the others find them.
  MemoryStore store;
  if (options.records != nullptr) {
    BLEND_RETURN_IF_ERROR(
        options.records->put(sample, options.chunk_prefix, options.kv_dtype, store, watch));
  }
  const StoreAccess access{&store, false, options.kv_dtype};
  for (size_t i = 0; i < settings.size(); ++i) {
    fuse_options.policy = settings[i].policy;
    fuse_options.deviation.metric = settings[i].metric.of;
    fuse_options.weighed = settings[i].metric.weighed;
    fuse_options.ratio = RatioRequest::fixed(settings[i].ratio);
    fuse_options.calibration.drift = settings[i].drift;
    fuse_options.calibration.stored_drift = settings[i].stored_drift;
    BLEND_ASSIGN(Fused fused, fuse(model, access, request));
    for (size_t t = 0; t < reference.size(); ++t) {
      if (t > 0) BLEND_RETURN_IF_ERROR(fused.sequence->append({&answer[t - 1], 1}, cancel_only));
      const std::vector<float>& logits = fused.sequence->logits();
      out[i].kl.push_back(kl_divergence(reference[t], logits));
      out[i].n_agree += likeliest(reference[t]) == likeliest(logits) ? 1 : 0;
    }
    out[i].end_prompt();
    out[i].flops += fused.info.flops;
    out[i].full_flops += full_flops;
    BLEND_RETURN_IF_ERROR(done());
  }
  return Status::ok();
}

}  // namespace blend
