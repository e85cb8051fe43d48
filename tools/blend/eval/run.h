// Run: every question by full prefill and by every configuration, one question after the other.
//
// Full prefill is the reference, of the same model or of one that keeps its weights otherwise. The
// question's chunks are put into the store first, in each kind of record, so that the time to first
// token of every configuration is that of a warm store, loading included. Configurations take turns
// within a question, so that a machine that slows down slows all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "dataset.h"
#include "eval/lead.h"
#include "eval/recorder.h"
#include "eval/rows.h"
#include "policy_spec.h"
#include "question.h"

namespace blend_cli {

// How a question is asked, whatever the configuration.
struct EvalPromptOptions {
  PromptForm form;
  AnswerLimits limits;
};

// One line of the table.
struct EvalConfig {
  uint32_t policy = 0;  // BLEND_POLICY_*
  uint32_t metric = 0;  // BLEND_METRIC_*; means nothing unless the policy measures
  double ratio = 0;     // 1 for full prefill, 0 for reuse; or BLEND_RATIO_FIDELITY
  uint32_t check_layer = 1;
  std::string records;   // how chunks are stored, see records.h; "" for full prefill
  PolicySpec spec = {};  // of `policy`; named for all but full and reuse
  uint32_t norm = BLEND_NORM_L2;
  bool relative = false;
  uint32_t checks = 1;     // check layers, from check_layer on, ratios falling around `ratio`
  uint64_t seed = 0;       // of the policy random
  bool corrected = false;  // with the profile's drift correction
  bool guarded = true;     // which is scaled by how it does on the recomputed rows
  double flops = 0;     // a share of full prefill's: `ratio` is what costs that much; 0: as it is
  ApeSetting ape = {};  // of the policy ape
  uint32_t codec = BLEND_CODEC_DEFAULT;  // of the chunks; DEFAULT: the store's
  // Index of the configuration that differs only by having a lossless codec.
  std::optional<size_t> unrounded = {};

  // Recomputes rows of its choice: everything but full prefill, full reuse and APE.
  bool chooses() const {
    return policy != BLEND_POLICY_FULL && policy != BLEND_POLICY_REUSE &&
           (spec.name.empty() || spec.chooses());
  }
  // Uses the ratio that the library takes by itself.
  bool keeps_agreement() const { return chooses() && ratio == BLEND_RATIO_FIDELITY; }
  bool tempers() const { return spec.tempers(); }
  bool measures() const { return chooses() && (policy == BLEND_POLICY_HKVD || spec.measures()); }
};
// "full", "reuse", "ape 0.9:0.9", "hkvd v", "hkvd v corrected", "first_k", "hkvd+first_k v, 3
// checks".
std::string config_name(const EvalConfig& config);

// Result of one configuration for one question.
struct Outcome {
  std::string answer;
  bool found = false;  // it contains a right answer
  bool exact_match = false;
  double f1 = 0;
  double kl = 0;             // KL(full || this) at full prefill's first answer token, nats
  double kl8 = 0;            // its mean over the first eight positions, decoded along it
  size_t n_places = 0;       // of full prefill's answer, its end included
  size_t n_agree = 0;        // of these, whose likeliest token is full prefill's
  bool top1_agrees = false;  // the first is
  size_t n_common = 0;       // places before the first that does not agree; n_places if none
  bool took_second = false;  // there it prefers full prefill's second likeliest token
  double lead = 0;  // there full prefill's own token is so far ahead of its second, nats; if all
                    // agree, the smallest such lead of the answer
  bool same_answer = false;  // the same text as full prefill's
  uint64_t ttft_ns = 0;      // the median of the repeats
  uint64_t n_rows = 0;
  uint64_t n_rows_reused = 0;
  uint64_t n_rows_selected = 0;
  uint64_t n_rows_always = 0;
  uint64_t n_misses = 0;
  double flops = 0;        // as the library counts them
  double drift_share = 0;  // of the drift correction, that the guard let through
  double kl_rounding = 0;  // KL(with a lossless codec || this), where that was run too
};

struct QuestionResult {
  size_t record = 0;              // index into the records
  Outcome full;                   // by full prefill, compared with the reference
  std::vector<Outcome> outcomes;  // one a configuration, full prefill among them if asked for
  std::optional<Outcome> floor;   // full prefill of the prompt without its chunks
  bool telling = false;           // full prefill is right, full reuse wrong, the showcase right
  // Of the showcase configuration, for a few questions only: the first ones and the telling ones.
  // Otherwise empty.
  RowTrace trace;
  blendpp::Tokens tokens;  // of the prompt
};

struct Skipped {
  size_t record = 0;
  std::string reason;
};

struct EvalPlan {
  EvalPromptOptions prompt;
  std::vector<EvalConfig> configs;
  size_t repeats = 1;               // fuses a configuration and question; their median is the TTFT
  size_t showcase = 0;              // the configuration whose rows are kept; configs.size(): none
  bool floor = true;                // ask without any chunk too
  bool shift = true;                // the shift of chunks, where the policy has it
  std::vector<std::string> corpus;  // texts of all chunks, for records similar:M and joined:M
  // Model whose full prefill everything is compared with; null: the same model.
  const blendpp::Model* reference = nullptr;
  const blendpp::Profile* profile = nullptr;  // of configurations with the records "profile"
  uint64_t trim_bytes = 0;  // 0: keep every chunk; else what this run stored is dropped past it
};

struct EvalResult {
  std::vector<QuestionResult> questions;
  std::map<uint32_t, CodecSize> sizes;  // by BLEND_CODEC_*; of the codecs that were named
  std::vector<Skipped> skipped;         // prompts that outgrow the model's context
};

// Gives every configuration with a budget of FLOPs the ratio that meets it, on the mean of the
// first few records; those that cost more at ratio 0 are left out, with a sentence each.
std::vector<std::string> fit_ratios(const blendpp::Model& model, const blendpp::Store& store,
                                    const std::vector<Record>& records, EvalPlan& plan);

// Throws what the library throws; CommandError when no question fits the model's context.
EvalResult run_eval(const blendpp::Model& model, const blendpp::Store& store,
                    const std::vector<Record>& records, const EvalPlan& plan);

}  // namespace blend_cli
