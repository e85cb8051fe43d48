#include "calibrate/layer_steps.h"

#include <algorithm>
#include <cmath>

#include "calibrate/sample_records.h"

namespace blend {
namespace {

// A scale at which a layer's cost stands out from float noise, and which is not yet its maximum.
constexpr float kTried = 1.41421356f;
// Bounds of a factor: beyond, the square law that it rests on has not been confirmed.
constexpr double kLeastFactor = 1.0 / 16;
constexpr double kMostFactor = 4;
// A layer that costs less than this share of the costliest one counts as that much: it was not
// measured more precisely.
constexpr double kFloor = 1e-4;

// One way of fusing one prompt, decoded along the answer with its chunks unrounded.
struct Way {
  FuseRequest request;
  std::vector<std::vector<float>> reference = {};  // a row of logits a token
  std::vector<int32_t> answer = {};
};

// One prompt, fused in every way.
class Trial {
 public:
  Trial(const std::shared_ptr<const Model>& model, const Sample& sample, const StepOptions& options,
        const std::function<Status()>& done, const Watch& watch)
      : model_(model), options_(options), done_(done) {
    FuseRequest request{sample, {}, {watch.cancel, {}}};
    FuseOptions& fuse = request.options;
    fuse.policy = Policy::reuse;
    fuse.reserve_tokens = options.score_tokens;
    fuse.chunk_prefix = options.chunk_prefix;
    ways_.push_back({request});
    if (!options.way.has_value()) return;
    fuse.policy = options.way->policy;
    fuse.deviation.metric = options.way->metric.of;
    fuse.weighed = options.way->metric.weighed;
    fuse.ratio = RatioRequest::fixed(options.way->ratio);
    fuse.check_layer = options.check_layer;
    ways_.push_back({std::move(request)});
  }

  // Prefills the chunks and answers with them unrounded.
  Status begin() {
    if (options_.records != nullptr) {
      const FuseRequest& request = ways_.front().request;
      BLEND_RETURN_IF_ERROR(options_.records->put(request.segments, options_.chunk_prefix,
                                                  options_.kv_dtype, exact_, request.watch));
    }
    for (Way& way : ways_) {
      BLEND_ASSIGN(Fused fused, fuse(model_, access(exact_), way.request));
      Sequence& sequence = *fused.sequence;
      way.reference.push_back(sequence.logits());
      while (way.reference.size() < options_.score_tokens &&
             sequence.n_rows() < sequence.capacity()) {
        const int32_t next = likeliest(way.reference.back());
        if (next == model_->tokenizer().eos()) break;
        way.answer.push_back(next);
        BLEND_RETURN_IF_ERROR(sequence.append({&next, 1}, way.request.watch));
        way.reference.push_back(sequence.logits());
      }
      BLEND_RETURN_IF_ERROR(done_());
    }
    return Status::ok();
  }

  // KL(exact || rounded) of every way, mean over the answer's tokens.
  Result<std::vector<double>> cost(std::span<const float> steps, RoundedSize* size = nullptr) {
    MemoryStore rounded;
    BLEND_ASSIGN(const RoundedSize took, put_rounded(exact_, Codec::rans, steps, rounded));
    if (size != nullptr) *size = took;
    std::vector<double> out;
    for (const Way& way : ways_) {
      BLEND_ASSIGN(Fused fused, fuse(model_, access(rounded), way.request));
      double kl = 0;
      for (size_t t = 0; t < way.reference.size(); ++t) {
        if (t > 0) {
          const int32_t token = way.answer[t - 1];
          BLEND_RETURN_IF_ERROR(fused.sequence->append({&token, 1}, way.request.watch));
        }
        kl += kl_divergence(way.reference[t], fused.sequence->logits());
      }
      out.push_back(kl / static_cast<double>(way.reference.size()));
      BLEND_RETURN_IF_ERROR(done_());
    }
    return out;
  }

  size_t n_ways() const { return ways_.size(); }

 private:
  // A device would mistake a chunk for the one of the same id that it holds.
  StoreAccess access(MemoryStore& store) const {
    StoreAccess out{&store, false, options_.kv_dtype};
    out.use_device_tier = false;
    return out;
  }

  const std::shared_ptr<const Model>& model_;
  const StepOptions& options_;
  const std::function<Status()>& done_;
  std::vector<Way> ways_;
  MemoryStore exact_;
};

std::string name_of(size_t sample) { return "sample " + std::to_string(sample); }

// The cost of each layer in each way when it alone is rounded: [n_ways][n_layers], sums over the
// prompts.
Result<std::vector<std::vector<double>>> layer_costs(const std::shared_ptr<const Model>& model,
                                                     std::span<const Sample> samples,
                                                     const StepOptions& options,
                                                     const std::function<Status()>& done,
                                                     const Watch& watch) {
  const uint32_t n_layers = model->config().n_kept();
  std::vector<std::vector<double>> kl;
  for (size_t i = 0; i < options.prompts.n_fitted; ++i) {
    Trial trial(model, samples[2 * i], options, done, watch);
    kl.resize(trial.n_ways(), std::vector<double>(n_layers, 0.0));
    BLEND_RETURN_IF_ERROR(trial.begin().with_context(name_of(2 * i)));
    std::vector<float> steps(n_layers, 0.0f);
    for (uint32_t layer = 0; layer < n_layers; ++layer) {
      steps[layer] = kTried;
      Result<std::vector<double>> cost = trial.cost(steps);
      if (!cost.is_ok()) return cost.status().with_context(name_of(2 * i));
      for (size_t w = 0; w < kl.size(); ++w) kl[w][layer] += (*cost)[w];
      steps[layer] = 0;
    }
  }
  return kl;
}

Result<std::vector<StepTrial>> try_steps(const std::shared_ptr<const Model>& model,
                                         std::span<const Sample> samples,
                                         std::span<const float> factors, const StepOptions& options,
                                         const std::function<Status()>& done, const Watch& watch) {
  const std::vector<float> alike(factors.size(), 1.0f);
  std::vector<StepTrial> out;
  for (size_t i = 0; i < options.prompts.n_judged; ++i) {
    Trial trial(model, samples[2 * i + 1], options, done, watch);
    BLEND_RETURN_IF_ERROR(trial.begin().with_context(name_of(2 * i + 1)));
    StepTrial& t = out.emplace_back();
    BLEND_ASSIGN(const std::vector<double> a, trial.cost(alike, &t.alike));
    BLEND_ASSIGN(const std::vector<double> s, trial.cost(factors, &t.split));
    for (size_t w = 0; w < a.size(); ++w) t.ways.push_back({a[w], s[w]});
  }
  return out;
}

double bits_of(const RoundedSize& size) {
  return size.elements == 0
             ? 0
             : 8 * static_cast<double>(size.bytes) / static_cast<double>(size.elements);
}

RoundedSize& operator+=(RoundedSize& a, const RoundedSize& b) {
  a.bytes += b.bytes;
  a.elements += b.elements;
  return a;
}

}  // namespace

std::vector<double> sum_of_shares(std::span<const std::vector<double>> kl) {
  std::vector<double> out;
  for (const std::vector<double>& way : kl) {
    double all = 0;
    for (const double cost : way) all += cost;
    if (!std::isfinite(all)) return {};
    if (all == 0) continue;
    out.resize(way.size());
    for (size_t l = 0; l < way.size(); ++l) out[l] += way[l] / all;
  }
  return out;
}

std::vector<float> split_steps(std::span<const double> kl) {
  if (kl.size() < 2) return {};
  double most = 0;
  for (const double cost : kl) {
    if (!std::isfinite(cost) || cost < 0) return {};
    most = std::max(most, cost);
  }
  if (most == 0) return {};
  const auto factors = [&](double octaves) {
    std::vector<double> out;
    for (const double cost : kl) {
      const double inverse = std::sqrt(most / std::max(cost, kFloor * most));
      out.push_back(std::clamp(std::exp2(octaves) * inverse, kLeastFactor, kMostFactor));
    }
    return out;
  };
  const auto mean_log = [](const std::vector<double>& f) {
    double sum = 0;
    for (const double x : f) sum += std::log2(x);
    return sum / static_cast<double>(f.size());
  };
  // The bounds shift the mean, so the common factor is searched for.
  double low = -16, high = 16;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (mean_log(factors(middle)) < 0 ? low : high) = middle;
  }
  const std::vector<double> found = factors(low);
  return {found.begin(), found.end()};
}

LayerSteps judge_steps(std::vector<float> factors, std::span<const StepTrial> trials) {
  LayerSteps out;
  RoundedSize alike, split;
  for (const StepTrial& t : trials) {
    alike += t.alike;
    split += t.split;
  }
  out.bits_alike = bits_of(alike);
  out.bits_split = bits_of(split);
  out.n_prompts = trials.size();
  // One more bit would have reduced the cost of equal scales to a quarter.
  const double handicap = std::min(1.0, std::pow(4.0, out.bits_alike - out.bits_split));
  // Gain of way w over the prompts.
  const auto gain_of = [&](size_t w) {
    Divergences gain;
    for (const StepTrial& t : trials) {
      gain.kl.push_back(handicap * t.ways[w].alike - t.ways[w].split);
      gain.end_prompt();
    }
    return gain;
  };
  if (trials.size() < kLeastJudged) return out;
  const auto n = static_cast<double>(trials.size());
  for (const StepTrial& t : trials) {
    out.kl_alike += t.ways[0].alike / n;
    out.kl_split += t.ways[0].split / n;
  }
  const Divergences reuse = gain_of(0);
  out.gain_margin = reuse.kl_margin();
  // A NaN is neither gain nor loss.
  bool better = reuse.kl_mean() > out.gain_margin;
  for (size_t w = 1; w < trials[0].ways.size(); ++w) {
    const Divergences gain = gain_of(w);
    better = better && gain.kl_mean() + gain.kl_margin() >= 0;
  }
  if (better) out.factors = std::move(factors);
  return out;
}

StepPrompts::StepPrompts(size_t n_samples, uint64_t most) {
  const size_t judged = std::min<uint64_t>(n_samples / 2, most);
  if (judged < kLeastJudged) return;
  n_judged = judged;
  n_fitted = std::min<uint64_t>((n_samples + 1) / 2, most);
}

uint64_t StepPrompts::n_runs(uint32_t n_layers, uint32_t n_ways) const {
  return n_ways * (n_fitted * (1 + uint64_t{n_layers}) + n_judged * 3);
}

Result<LayerSteps> find_layer_steps(const std::shared_ptr<const Model>& model,
                                    std::span<const Sample> samples, const StepOptions& options,
                                    const std::function<Status()>& done, const Watch& watch) {
  if (options.prompts.n_judged == 0) return LayerSteps{};
  // A cache with values that are not numbers can still be fused, but not be rounded.
  const auto unless_numeric = [](const Status& status) -> Result<LayerSteps> {
    if (status.code() == BLEND_E_NUMERIC) return LayerSteps{};
    return status;
  };
  auto kl = layer_costs(model, samples, options, done, watch);
  if (!kl.is_ok()) return unless_numeric(kl.status());
  std::vector<float> factors = split_steps(sum_of_shares(*kl));
  if (factors.empty()) return LayerSteps{};
  auto trials = try_steps(model, samples, factors, options, done, watch);
  if (!trials.is_ok()) return unless_numeric(trials.status());
  return judge_steps(std::move(factors), *trials);
}

}  // namespace blend
