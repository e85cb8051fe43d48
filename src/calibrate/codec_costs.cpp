#include "calibrate/codec_costs.h"

#include <algorithm>
#include <optional>

#include "calibrate/memory_store.h"
#include "calibrate/rounding.h"
#include "calibrate/sample_records.h"
#include "store/codec/codec.h"

namespace blend {
namespace {

// A row of next-token logits for each token of the answer.
using LogitRows = std::vector<std::vector<float>>;

std::vector<Codec> rounding_codecs() {
  std::vector<Codec> out;
  for (size_t i = 0; i < std::size(kCodecTable); ++i) {
    if (!kCodecTable[i].lossless) out.push_back(static_cast<Codec>(i));
  }
  return out;
}

// The sums of one codec over the prompts.
struct Sums {
  Codec codec = Codec::none;
  Divergences rounding;
  RoundedSize size;
  bool keeps = true;  // every value so far
};

double mean_kl(const LogitRows& p, const LogitRows& q) {
  double sum = 0;
  for (size_t t = 0; t < p.size(); ++t) sum += kl_divergence(p[t], q[t]);
  return sum / static_cast<double>(p.size());
}

// One prompt, fused from exact and from rounded chunks and decoded along full prefill's answer.
class CodecTrial {
 public:
  CodecTrial(const std::shared_ptr<const Model>& model, const Sample& sample,
             const CodecTrialOptions& options, const Watch& watch)
      : model_(model), options_(options), request_{sample, {}, {watch.cancel, {}}} {
    FuseOptions& fuse = request_.options;
    fuse.policy = Policy::full;
    fuse.reserve_tokens = options.score_tokens;
    fuse.chunk_prefix = options.chunk_prefix;
    fuse.check_layer = options.check_layer;
  }

  // Full prefill's own rows; they make the answer.
  Result<LogitRows> full() {
    BLEND_ASSIGN(Fused fused, fuse(model_, {}, request_));
    LogitRows rows = {fused.sequence->logits()};
    while (rows.size() < options_.score_tokens &&
           fused.sequence->n_rows() < fused.sequence->capacity()) {
      const int32_t next = likeliest(rows.back());
      if (next == model_->tokenizer().eos()) break;
      answer_.push_back(next);
      BLEND_RETURN_IF_ERROR(fused.sequence->append({&next, 1}, request_.watch));
      rows.push_back(fused.sequence->logits());
    }
    FuseOptions& fuse = request_.options;
    fuse.policy = options_.way.policy;
    fuse.deviation.metric = options_.way.metric.of;
    fuse.weighed = options_.way.metric.weighed;
    fuse.ratio = RatioRequest::fixed(options_.way.ratio);
    return rows;
  }

  // Chunks that `store` lacks are put there.
  Result<LogitRows> along_answer(MemoryStore& store) {
    StoreAccess access{&store, false, options_.kv_dtype};
    // A device would mistake a chunk for the one of the same id that it holds.
    access.use_device_tier = false;
    BLEND_ASSIGN(Fused fused, fuse(model_, access, request_));
    LogitRows rows = {fused.sequence->logits()};
    for (const int32_t token : answer_) {
      BLEND_RETURN_IF_ERROR(fused.sequence->append({&token, 1}, request_.watch));
      rows.push_back(fused.sequence->logits());
    }
    return rows;
  }

 private:
  const std::shared_ptr<const Model>& model_;
  const CodecTrialOptions& options_;
  FuseRequest request_;
  std::vector<int32_t> answer_;
};

// Rounds the chunks by one codec and adds what that costs.
Status add_cost(CodecTrial& trial, const MemoryStore& exact, const LogitRows& unrounded,
                std::span<const float> steps, Sums& sums) {
  MemoryStore rounded;
  auto size = put_rounded(exact, sums.codec, steps, rounded);
  if (!size.is_ok()) {
    sums.keeps = false;
    return size.status().code() == BLEND_E_NUMERIC ? Status::ok() : size.status();
  }
  BLEND_ASSIGN(const LogitRows rows, trial.along_answer(rounded));
  sums.rounding.kl.push_back(mean_kl(unrounded, rows));
  sums.rounding.end_prompt();
  sums.size.bytes += size->bytes;
  sums.size.elements += size->elements;
  return Status::ok();
}

}  // namespace

uint64_t codec_runs() { return 2 + rounding_codecs().size(); }

Result<std::vector<CodecCost>> find_codec_costs(const std::shared_ptr<const Model>& model,
                                                std::span<const Sample* const> samples,
                                                const CodecTrialOptions& options,
                                                const std::function<Status()>& done,
                                                const Watch& watch) {
  const std::vector<float> alike(model->config().n_kept(), 1.0f);
  std::vector<Sums> sums;
  for (const Codec codec : rounding_codecs()) sums.emplace_back().codec = codec;
  double fuse_kl = 0;
  for (const Sample* const sample : samples) {
    CodecTrial trial(model, *sample, options, watch);
    BLEND_ASSIGN(const LogitRows full, trial.full());
    BLEND_RETURN_IF_ERROR(done());
    MemoryStore exact;
    if (options.records != nullptr) {
      BLEND_RETURN_IF_ERROR(
          options.records->put(*sample, options.chunk_prefix, options.kv_dtype, exact, watch));
    }
    BLEND_ASSIGN(const LogitRows unrounded, trial.along_answer(exact));
    BLEND_RETURN_IF_ERROR(done());
    fuse_kl += mean_kl(full, unrounded);
    for (Sums& s : sums) {
      const bool split = s.codec == Codec::rans && !options.layer_steps.empty();
      const std::span<const float> steps = split ? options.layer_steps : alike;
      if (s.keeps) BLEND_RETURN_IF_ERROR(add_cost(trial, exact, unrounded, steps, s));
      BLEND_RETURN_IF_ERROR(done());
    }
  }
  std::vector<CodecCost> out;
  for (const Sums& s : sums) {
    if (!s.keeps || s.size.elements == 0) continue;
    CodecCost& cost = out.emplace_back();
    cost.codec = static_cast<uint32_t>(s.codec) + 1;  // BLEND_CODEC_*
    cost.kl = s.rounding.kl_mean();
    cost.kl_margin = s.rounding.kl_margin();
    cost.kl_fuse = fuse_kl / static_cast<double>(samples.size());
    cost.bits = 8 * static_cast<double>(s.size.bytes) / static_cast<double>(s.size.elements);
    cost.n_prompts = samples.size();
  }
  return out;
}

}  // namespace blend
