#include "control/advise.h"

#include <algorithm>

namespace blend {
namespace {

// At most this many parts: more chunks are counted in groups, since choosing among more takes long
// and gains nothing.
constexpr uint64_t kMostParts = 32;

PassQuestion question_of(const AdvisedPrompt& p, const Storage& storage) {
  PassQuestion q;
  q.config = p.config;
  q.machine = p.machine;
  q.rules = {[check = p.check_layer](double ratio) {
               return Schedule{{check, ratio}};
             },
             {},
             p.check_layer};
  q.n_rows = p.n_tokens;
  const uint64_t n_chunks = (p.n_tokens + p.chunk_tokens - 1) / p.chunk_tokens;
  const uint64_t group = (n_chunks + kMostParts - 1) / kMostParts;
  for (uint64_t first = 0; first < p.n_tokens; first += group * p.chunk_tokens) {
    StoredPart& part = q.parts.emplace_back();
    part.n_rows = std::min(group * p.chunk_tokens, p.n_tokens - first);
    part.counts = part.known = true;
    part.layer_s =
        kReadsBeside * static_cast<double>(part.n_rows) * p.token_bytes / storage.bytes_per_s;
    part.latency_s = storage.latency_s;
  }
  return q;
}

StorageAdvice advise_for(const AdvisedPrompt& p, double ratio, const Storage& storage) {
  PassQuestion question = question_of(p, storage);
  const PassModel loaded(question);
  const PassCost cost = loaded.cost(ratio);
  StorageAdvice out;
  out.load_s = cost.load_s;
  out.total_s = cost.seconds;
  out.hidden_ratio = loaded.largest_ratio(0, kRounding * loaded.cost(0).seconds, 1);
  out.cost_per_hour = static_cast<double>(p.load_bytes()) * 1e-9 * storage.cost_per_gb_hour;
  double first_layer_s = 0;
  for (const StoredPart& part : question.parts) first_layer_s += part.layer_s;
  out.hides = cost.seconds <= kRounding * (cost.compute_s + first_layer_s);
  // There is always a choice, because all loading times are known.
  const RatioChoice choice = choose_pass(question, ratio, 0).value_or(RatioChoice{});
  out.slower_than_prefill = cost.load_s > choice.computing_s;
  out.ratio = choice.n_rows_computed == p.n_tokens ? 1.0 : choice.ratio;
  out.expected_s = choice.ttft_s;
  return out;
}

}  // namespace

uint64_t AdvisedPrompt::load_bytes() const {
  return static_cast<uint64_t>(token_bytes * static_cast<double>(n_tokens) *
                               (config->n_kept() - check_layer));
}

Advice advise(const AdvisedPrompt& prompt, double ratio, std::span<const Storage> storages) {
  Advice out;
  for (const Storage& storage : storages) {
    const StorageAdvice& a = out.storages.emplace_back(advise_for(prompt, ratio, storage));
    if (!a.hides) continue;
    const size_t i = out.storages.size() - 1;
    const auto better = [&](size_t j) {
      if (storage.cost_per_gb_hour != storages[j].cost_per_gb_hour) {
        return storage.cost_per_gb_hour < storages[j].cost_per_gb_hour;
      }
      return storage.bytes_per_s > storages[j].bytes_per_s;
    };
    if (!out.cheapest || better(*out.cheapest)) out.cheapest = i;
  }
  const PassQuestion free = question_of(prompt, {.bytes_per_s = 1});
  out.recompute_s = PassModel(free).cost(ratio).compute_s;
  return out;
}

}  // namespace blend
