// blend ask: documents + question -> streamed answer, then what it took.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "chat_prompt.h"
#include "choices.h"
#include "command.h"
#include "compare.h"
#include "corpus.h"
#include "exact_answer.h"
#include "function_calls.h"
#include "interrupt.h"
#include "policy_spec.h"
#include "printable.h"
#include "progress.h"
#include "report.h"
#include "table.h"

namespace blend_cli {
namespace {

struct AskOptions {
  CommonOptions common;
  ModelChoice model;
  StoreOptions store;
  CorpusOptions corpus;
  std::vector<std::string> questions;
  std::string question_template = kDefaultQuestionTemplate;
  bool special = false;  // control tokens in the system text and the question's template
  ChatChoice chat;
  std::string policy = "auto";
  std::string metric = "v_weighed";
  std::string ratio = "fidelity";  // or a number or "auto"
  double agreement = 0;            // 0: the library's
  uint32_t check_layer = 1;
  std::string machine;
  std::string norm = "l2";
  bool relative = false;
  std::string check_layers;
  uint32_t checks = 1;
  uint64_t policy_seed = 0;
  std::string ape = "0.9:0.9";
  std::string on_miss = "compute_store";
  bool read_only = false;
  std::string on_untrusted = "fuse";
  uint32_t max_tokens = 128;
  float temperature = 0;
  float top_p = 1;
  uint32_t top_k = 0;
  uint64_t seed = 0;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  uint32_t penalty_context = 0;
  std::vector<std::string> stop;
  std::vector<std::string> logit_bias;  // TOKEN:BIAS
  bool json_object = false;
  std::string json_schema;  // a file
  std::string regex;
  std::string grammar;  // a file
  FunctionChoice functions;
  uint32_t top_logprobs = 0;
  double ttft_ms = 0;
  std::vector<std::string> given;  // of these, the ones that hold against a profile
  bool exact = false;
  bool compare = false;
  bool layers = false;
  bool quiet = false;
};

const Choices kOnMiss = {{"precompute", BLEND_MISS_PRECOMPUTE},
                         {"compute", BLEND_MISS_COMPUTE},
                         {"compute_store", BLEND_MISS_COMPUTE_STORE},
                         {"fail", BLEND_MISS_FAIL}};

const Choices kOnUntrusted = {{"fuse", BLEND_ON_UNTRUSTED_FUSE},
                              {"full", BLEND_ON_UNTRUSTED_FULL},
                              {"fail", BLEND_ON_UNTRUSTED_FAIL}};

double ratio_of(const AskOptions& options) {
  if (options.ratio == "fidelity") return BLEND_RATIO_FIDELITY;
  return options.ratio == "auto" ? BLEND_RATIO_AUTO : std::stod(options.ratio);
}

blendpp::Prompt make_prompt(const blendpp::Model& model, const Corpus& corpus,
                            const AskOptions& options, const std::string& question) {
  std::vector<std::string> documents;
  for (const Chunk& chunk : corpus.chunks) documents.emplace_back(chunk.text);
  if (options.chat.wanted) {
    return chat_prompt(model, options.chat, options.corpus.system, documents, question);
  }
  return plain_prompt(model, options.corpus.system, documents, options.question_template, question,
                      options.special);
}

void check_length(const blendpp::Model& model, const Corpus& corpus,
                  const blendpp::Prompt& prompt) {
  const size_t limit = model.info().context_length;
  // One row at least for the answer.
  if (prompt.n_tokens() + 1 <= limit) return;
  size_t n_in_chunks = 0;
  for (const Chunk& chunk : corpus.chunks) n_in_chunks += chunk.tokens.size();
  throw CommandError(
      kExitError,
      format("the prompt has %zu tokens (%zu of them in %zu chunks), %zu too many for the model's "
             "context of %zu with room for an answer: give fewer or shorter documents",
             prompt.n_tokens(), n_in_chunks, corpus.chunks.size(), prompt.n_tokens() + 1 - limit,
             limit));
}

// What the fuse's options point at.
struct Choice {
  PolicySpec policy;
  std::vector<blend_check_layer> check_layers;
};

Choice choice_of(const AskOptions& options, const blendpp::Model& model) {
  Choice choice;
  choice.policy = parse_policy(options.policy);
  if (!options.check_layers.empty()) {
    choice.check_layers = parse_check_layers(options.check_layers);
  } else if (options.checks > 1) {
    if (ratio_of(options) < 0) {
      throw CommandError(kExitUsage,
                         "--checks: give a number to fall around, --ratio 0.15 for one");
    }
    choice.check_layers =
        model.default_check_layers(ratio_of(options), options.check_layer, options.checks);
  }
  return choice;
}

blendpp::FuseOptions fuse_options(const AskOptions& options, const Choice& choice,
                                  const Corpus& corpus, const blendpp::Prompt& prompt,
                                  size_t context_length) {
  blendpp::FuseOptions fuse;
  if (corpus.profile != nullptr) corpus.profile->apply(fuse);
  const auto holds = [&](const char* name) {
    return corpus.profile == nullptr ||
           std::find(options.given.begin(), options.given.end(), name) != options.given.end();
  };
  if (holds("--policy")) fuse.policy = choice.policy.policy;
  if (holds("--metric")) fuse.selection.metric = value_of(metric_choices(), options.metric);
  if (holds("--ratio") || options.agreement > 0) fuse.ratio = ratio_of(options);
  fuse.agreement_target = options.agreement;
  fuse.ttft_target_ns = static_cast<uint64_t>(options.ttft_ms * 1e6);
  if (holds("--check-layer")) fuse.selection.check_layer = options.check_layer;
  fuse.selection.terms = choice.policy.terms.data();
  fuse.selection.n_terms = choice.policy.terms.size();
  fuse.selection.check_layers = choice.check_layers.data();
  fuse.selection.n_check_layers = choice.check_layers.size();
  fuse.selection.seed = options.policy_seed;
  fuse.selection.norm = value_of(norm_choices(), options.norm);
  fuse.selection.relative = options.relative ? 1 : 0;
  const ApeSetting ape = parse_ape(options.ape);
  fuse.selection.ape_temperature = ape.temperature;
  fuse.selection.ape_scale = ape.scale;
  fuse.on_miss = value_of(kOnMiss, options.on_miss);
  // With nowhere to store, a miss is computed inline, which is exact.
  if (options.read_only && fuse.on_miss != BLEND_MISS_FAIL) fuse.on_miss = BLEND_MISS_COMPUTE;
  fuse.on_untrusted = value_of(kOnUntrusted, options.on_untrusted);
  fuse.reserve_tokens = static_cast<uint32_t>(
      std::min<size_t>(options.max_tokens, context_length - prompt.n_tokens()));
  set_chunk_prefix(fuse, corpus);
  fuse.tenant = options.corpus.tenant.c_str();
  fuse.cancel = interrupt_token();
  return fuse;
}

struct Answer {
  std::string text;
  std::vector<std::string> calls;  // a line each
  blendpp::Generated generated;
  nlohmann::json logprobs = nlohmann::json::array();  // of each token
  size_t n_shown = 0, n_taken_back = 0;               // with --exact
};

// Reads "TOKEN:BIAS"; false if `text` is not of that form.
bool read_bias(const std::string& text, blend_token_bias& out) {
  try {
    size_t end = 0;
    out.token = std::stoi(text, &end);
    if (end >= text.size() || text[end] != ':') return false;
    const std::string bias = text.substr(end + 1);
    out.bias = std::stof(bias, &end);
    return end == bias.size() && !bias.empty();
  } catch (const std::exception&) {
    return false;
  }
}

nlohmann::json logprobs_json(blendpp::Span<const blend_logprob> found) {
  const auto one = [](const blend_logprob& p) {
    return nlohmann::json{{"token", p.token}, {"logprob", p.logprob}};
  };
  nlohmann::json out = one(found[0]);
  out["top"] = nlohmann::json::array();
  for (size_t i = 1; i < found.size(); ++i) out["top"].push_back(one(found[i]));
  return out;
}

// What the answer must be; null: any text.
std::unique_ptr<blendpp::Grammar> grammar_of(const blendpp::Model& model,
                                             const AskOptions& options) {
  blendpp::GrammarOptions how;
  how.cancel = interrupt_token();
  std::string text;
  if (options.json_object) {
    how.language = BLEND_GRAMMAR_JSON;
  } else if (!options.json_schema.empty()) {
    how.language = BLEND_GRAMMAR_JSON_SCHEMA;
    text = read_text_option("--json-schema", options.json_schema);
  } else if (!options.regex.empty()) {
    how.language = BLEND_GRAMMAR_REGEX;
    text = options.regex;
  } else if (!options.grammar.empty()) {
    how.language = BLEND_GRAMMAR_EBNF;
    text = read_text_option("--grammar", options.grammar);
  } else {
    return nullptr;
  }
  how.text = text.c_str();
  return std::make_unique<blendpp::Grammar>(model, how);
}

// functions: null where there are none.
Answer generate(blendpp::Fusion& fusion, const blendpp::Grammar* grammar,
                const Functions* functions, const AskOptions& options) {
  blendpp::GenerateOptions generate;
  generate.max_tokens = options.max_tokens;
  generate.temperature = options.temperature;
  generate.top_p = options.top_p;
  generate.top_k = options.top_k;
  generate.seed = options.seed;
  generate.min_p = options.min_p;
  generate.repetition_penalty = options.repetition_penalty;
  generate.frequency_penalty = options.frequency_penalty;
  generate.presence_penalty = options.presence_penalty;
  generate.penalty_context = options.penalty_context;
  std::vector<blend_text> stop;
  for (const std::string& text : options.stop) stop.push_back({text.data(), text.size()});
  generate.stop_texts = stop.data();
  generate.n_stop_texts = stop.size();
  std::vector<blend_token_bias> bias(options.logit_bias.size());
  for (size_t i = 0; i < bias.size(); ++i) read_bias(options.logit_bias[i], bias[i]);
  generate.logit_bias = bias.data();
  generate.n_logit_bias = bias.size();
  if (grammar != nullptr) generate.grammar = grammar->get();
  generate.cancel = interrupt_token();
  Answer answer;
  if (options.top_logprobs > 0) {
    generate.top_logprobs = options.top_logprobs;
    generate.on_logprobs = [&answer](blendpp::Span<const blend_logprob> found) {
      answer.logprobs.push_back(logprobs_json(found));
      return true;
    };
  }
  // Nothing but the answer: what may be taken back is not shown.
  const bool waits = options.exact && options.quiet;
  // Control characters that a model generates would steer a terminal; elsewhere they are kept.
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  PrintableStream stream;
  const auto write = [&](std::string_view text) {
    if (options.common.json) return;
    if (terminal) {
      std::cout << stream.add(text) << std::flush;
    } else {
      std::cout << text << std::flush;
    }
  };
  const auto show = [&](std::string_view text) {
    if (!waits) write(text);
  };
  const auto end = [&] { std::cout << stream.finish(); };
  if (options.exact) {
    ExactCalls calls;
    calls.show = show;
    calls.correct = [&](std::string_view right) {
      end();
      show("\n[corrected] ");
      show(right);
    };
    ExactAnswer exact = answer_exactly(fusion, generate, calls);
    answer.text = std::move(exact.text);
    answer.generated = exact.generated;
    answer.n_shown = exact.n_shown;
    answer.n_taken_back = exact.n_taken_back;
    if (waits) write(answer.text);
    end();
    return answer;
  }
  const auto add = [&](std::string_view text) {
    answer.text += text;
    show(text);
  };
  std::optional<blendpp::CallReader> reader;
  if (functions != nullptr) reader.emplace(functions->reader());
  answer.generated = fusion.generate(generate, [&](int32_t token, std::string_view text) {
    add(reader ? reader->add(token, text) : text);
    return true;
  });
  if (reader) {
    add(reader->end(!answer.generated.by_stop_token));
    for (const blendpp::CallInfo& call : reader->calls()) answer.calls.push_back(call_line(call));
  }
  end();
  if (options.common.json) return answer;
  for (size_t i = 0; i < answer.calls.size(); ++i) {
    std::cout << (i > 0 || !answer.text.empty() ? "\n" : "") << answer.calls[i];
  }
  return answer;
}

std::optional<Functions> asked_functions(const blendpp::Model& model, const AskOptions& options) {
  if (options.functions.file.empty()) return std::nullopt;
  return std::optional<Functions>(std::in_place, model, options.functions, options.chat);
}

// One question and what became of it.
struct Turn {
  std::string question;
  blendpp::Prompt prompt;
  blendpp::FuseOptions fuse;
  std::unique_ptr<blendpp::Fusion> fusion;
  FusionReport report;
  Answer answer;
  Comparison comparison;
  std::string not_stored;  // why chunks that were prefilled are not in the store; "": they are
};

// Several questions over the same documents are fused together: their chunks are loaded once.
void fuse_all(const blendpp::Model& model, const blendpp::Store& store, std::vector<Turn>& turns) {
  ProgressBar bar("Fusing");
  turns.front().fuse.on_progress = bar.callback();  // all go in step
  if (turns.size() == 1) {
    Turn& only = turns.front();
    only.fusion = std::make_unique<blendpp::Fusion>(model, &store, only.prompt, only.fuse);
  } else {
    blendpp::Batch batch;
    for (const Turn& turn : turns) batch.add(turn.prompt, turn.fuse);
    std::vector<blendpp::Batch::Outcome> outcomes = batch.fuse(model, &store);
    for (size_t i = 0; i < turns.size(); ++i) {
      if (outcomes[i].error) throw *outcomes[i].error;
      turns[i].fusion = std::move(outcomes[i].fusion);
    }
  }
  turns.front().fuse.on_progress = nullptr;  // its bar is gone
  for (Turn& turn : turns) turn.report = report_of(*turn.fusion);
}

nlohmann::json turn_json(const Turn& turn, const AskOptions& options) {
  nlohmann::json out = {{"answer", turn.answer.text},
                        {"n_generated", turn.answer.generated.n_tokens},
                        {"stopped", turn.answer.generated.by_stop_token},
                        {"fusion", report_json(turn.report)}};
  if (!options.functions.file.empty()) {
    out["tool_calls"] = nlohmann::json::array();
    for (const std::string& call : turn.answer.calls) {
      out["tool_calls"].push_back(nlohmann::json::parse(call));
    }
  }
  if (options.top_logprobs > 0) out["logprobs"] = turn.answer.logprobs;
  if (options.exact) {
    out["exact"] = {{"n_shown", turn.answer.n_shown}, {"n_taken_back", turn.answer.n_taken_back}};
  }
  if (!turn.not_stored.empty()) out["not_stored"] = turn.not_stored;
  if (options.compare) out["compare"] = comparison_json(turn.comparison);
  return out;
}

void print_turn(const Turn& turn, const AskOptions& options) {
  if (options.quiet) return;
  std::cout << '\n' << summary_text(turn.report);
  if (options.layers) std::cout << '\n' << layers_text(turn.report);
  if (options.compare) std::cout << '\n' << comparison_text(turn.comparison);
}

// Waits until missing chunks are stored, and better records of the others: closing the store would
// drop what is not. The answer is right whether or not there was room, so this is a note and not a
// failure.
std::string flushed(const blendpp::Store& store) {
  try {
    store.flush();
    return {};
  } catch (const blendpp::Error& error) {
    if (error.code() != BLEND_E_FULL && error.code() != BLEND_E_IO) throw;
    print_note(std::string("chunks were not stored: ") + error.what() + " (" + error.name() + ")");
    return error.what();
  }
}

blendpp::Store open_asked_store(const blendpp::Context& ctx, const AskOptions& options) {
  if (options.read_only) return open_existing_store(ctx, options.store.path, true);
  return open_store(ctx, options.store);
}

void run(const AskOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  const Corpus corpus = make_corpus(model, options.corpus, options.special);
  const std::optional<Functions> functions = asked_functions(model, options);
  std::vector<Turn> turns(options.questions.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    turns[i].question = options.questions[i];
    turns[i].prompt = make_prompt(model, corpus, options, turns[i].question);
    check_length(model, corpus, turns[i].prompt);
  }
  const std::unique_ptr<blendpp::Grammar> grammar =
      functions ? functions->grammar() : grammar_of(model, options);
  const blendpp::Store store = open_asked_store(ctx, options);
  if (corpus.profile != nullptr) store.set_codec_profile(*corpus.profile);
  std::unique_ptr<blendpp::Machine> machine;
  if (!options.machine.empty()) {
    machine = std::make_unique<blendpp::Machine>(model, options.machine);
  }
  const Choice choice = choice_of(options, model);
  for (Turn& turn : turns) {
    turn.fuse = fuse_options(options, choice, corpus, turn.prompt, model.info().context_length);
    if (machine != nullptr) turn.fuse.machine = machine->get();
  }
  fuse_all(model, store, turns);
  const bool several = turns.size() > 1;
  for (Turn& turn : turns) {
    if (several && !options.common.json) {
      std::cout << (&turn == &turns.front() ? "" : "\n") << "> " << turn.question << '\n';
    }
    turn.answer = generate(*turn.fusion, grammar.get(), functions ? &*functions : nullptr, options);
    turn.fusion.reset();
    turn.not_stored = flushed(store);
    if (options.compare) {
      ProgressBar bar("Comparing");
      turn.comparison = compare(model, store, turn.prompt, turn.fuse, turn.fuse.reserve_tokens);
      flushed(store);
    }
    if (options.common.json) continue;
    std::cout << '\n';
    print_turn(turn, options);
  }
  if (!options.common.json) return;
  nlohmann::json out;
  if (several) {
    for (const Turn& turn : turns) {
      nlohmann::json one = turn_json(turn, options);
      one["question"] = turn.question;
      out.push_back(std::move(one));
    }
  } else {
    out = turn_json(turns.front(), options);
  }
  std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

// CLI11 validator: a share, or the word that leaves it to the controller.
std::string check_ratio(const std::string& text) {
  if (text == "auto" || text == "fidelity") return {};
  try {
    size_t end = 0;
    const double ratio = std::stod(text, &end);
    if (end == text.size() && ratio >= 0.0 && ratio <= 1.0) return {};
  } catch (const std::exception&) {  // said below
  }
  return "'" + text + "' is neither a number from 0 to 1, nor fidelity, nor auto";
}

void add_fuse_options(CLI::App& command, AskOptions& options) {
  command
      .add_option("--policy", options.policy,
                  "Which rows are recomputed: " + policy_names() +
                      "; several joined by +, each with its share: hkvd:0.7+first_k:0.3")
      ->check(check_policy)
      ->type_name("POLICY")
      ->capture_default_str();
  command
      .add_option("--metric", options.metric,
                  "Deviation of v, k or kv, weighed by attention or not")
      ->check(CLI::IsMember(names_of(metric_choices())))
      ->capture_default_str();
  command
      .add_option("--ratio", options.ratio,
                  "Share of the reused rows that is recomputed; fidelity: the ratio that keeps "
                  "--agreement, by the store's checks; auto: as much as takes no longer than "
                  "loading, by --machine")
      ->check(check_ratio)
      ->type_name("R")
      ->capture_default_str();
  command
      .add_option("--agreement", options.agreement,
                  "With --ratio fidelity: full prefill should prefer the same token at this share "
                  "of the answers' tokens; default 0.98")
      ->check(CLI::Range(0.5, 0.999))
      ->type_name("SHARE");
  command
      .add_option("--machine", options.machine,
                  "How fast this machine computes, for --ratio auto: the file of blend advise "
                  "(measured now if it is not there)")
      ->type_name("FILE");
  command
      .add_option("--ttft-ms", options.ttft_ms,
                  "With --ratio auto: a time to first token that is soon enough; spare time is "
                  "used to recompute more; 0: as soon as possible")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  command
      .add_option("--check-layer", options.check_layer,
                  "The layer at which deviations are measured")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--norm", options.norm, "Deviations as a sum of squares (l2) or magnitudes (l1)")
      ->check(CLI::IsMember(names_of(norm_choices())))
      ->capture_default_str();
  command.add_flag("--relative", options.relative,
                   "Divide a deviation by the stored row's own size");
  CLI::Option* const layers =
      command
          .add_option("--check-layers", options.check_layers,
                      "Gradual filtering: layers and the ratio after each, as 1:0.3,4:0.15")
          ->check(check_check_layers)
          ->type_name("LIST");
  command
      .add_option("--checks", options.checks,
                  "Gradual filtering: this many check layers from --check-layer on, ratios falling "
                  "around --ratio")
      ->check(CLI::Range(1, 1 << 16))
      ->excludes(layers)
      ->capture_default_str();
  command.add_option("--policy-seed", options.policy_seed, "Seed for policy random")
      ->capture_default_str();
  command.add_option("--ape", options.ape, "Attention temperature and scale of the policy ape")
      ->check(check_ape)
      ->type_name("T:S")
      ->capture_default_str();
  command
      .add_option(
          "--on-miss", options.on_miss,
          "A chunk that is not stored: compute it inline, which is exact, and store it after the "
          "answer (compute_store); compute it inline; prefill and store it before the rest "
          "(precompute); or fail")
      ->check(CLI::IsMember(names_of(kOnMiss)))
      ->capture_default_str();
  command
      .add_option("--on-untrusted", options.on_untrusted,
                  "A way of fusing that the profile does not trust: fuse and say so, prefill "
                  "in full instead, or fail")
      ->check(CLI::IsMember(names_of(kOnUntrusted)))
      ->capture_default_str();
}

void add_answer_options(CLI::App& command, AskOptions& options) {
  command.add_option("--max-tokens", options.max_tokens, "Maximum tokens of the answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--temperature", options.temperature, "0: greedy")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--top-p", options.top_p, "1: off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--top-k", options.top_k, "0: off")->capture_default_str();
  command.add_option("--seed", options.seed, "Sampler seed")->capture_default_str();
  command
      .add_option("--min-p", options.min_p,
                  "Minimum probability of a token, as a share of the likeliest one's; 0: off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option("--repetition-penalty", options.repetition_penalty,
                  "Divides the logits of tokens that were generated; 1: off")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--frequency-penalty", options.frequency_penalty,
                  "Subtracted from a token's logit for each time that it was generated")
      ->capture_default_str();
  command
      .add_option("--presence-penalty", options.presence_penalty,
                  "Subtracted from a token's logit once it was generated")
      ->capture_default_str();
  command
      .add_option("--penalty-context", options.penalty_context,
                  "Number of the prompt's last tokens that penalties count as generated")
      ->capture_default_str();
  command
      .add_option("--stop", options.stop,
                  "The answer ends before this text; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  command
      .add_option("--logit-bias", options.logit_bias,
                  "Added to a token's logit, as 198:-2; -inf: never. May be given several times")
      ->check([](const std::string& text) {
        blend_token_bias bias;
        return read_bias(text, bias) ? std::string() : "'" + text + "' is not TOKEN:BIAS";
      })
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TOKEN:BIAS");
  command.add_flag("--json-object", options.json_object, "The answer is a JSON object");
  command
      .add_option("--json-schema", options.json_schema,
                  "The answer is JSON that satisfies the schema in this file")
      ->excludes("--json-object")
      ->type_name("FILE");
  command.add_option("--regex", options.regex, "The answer matches this regular expression")
      ->excludes("--json-object")
      ->excludes("--json-schema")
      ->type_name("PATTERN");
  command
      .add_option("--grammar", options.grammar,
                  "The answer is a text of the EBNF grammar in this file, whose first rule is root")
      ->excludes("--json-object")
      ->excludes("--json-schema")
      ->excludes("--regex")
      ->type_name("FILE");
  add_tools(command, options.functions);
  add_tool_choice(command, options.functions);
  for (const char* name : {"--json-object", "--json-schema", "--regex", "--grammar"}) {
    command.get_option("--tools")->excludes(command.get_option(name));
  }
  command
      .add_option("--logprobs", options.top_logprobs,
                  "With --json: each token's probability, and this many of the likeliest")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
}

}  // namespace

void register_ask(CLI::App& app) {
  auto options = std::make_shared<AskOptions>();
  CLI::App* command = app.add_subcommand("ask", "Answer a question from documents");
  add_model(*command, options->model);
  add_store_options(*command, options->store);
  command->add_flag(
      "--read-only", options->read_only,
      "Open the store to read: nothing is stored, missing chunks are computed inline");
  add_corpus_options(*command, options->corpus, false);
  command
      ->add_option("--question", options->questions,
                   "The question; given several times, the prompts are fused in one batch")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
  command
      ->add_option("--question-template", options->question_template,
                   "The text around the question, which replaces {question}; \\n is a new line")
      ->check(check_question_template)
      ->type_name("TEXT")
      ->capture_default_str();
  command->add_flag("--special", options->special,
                    "Control tokens such as <|im_end|> in --system and --question-template are "
                    "recognized; in the question and the documents they never are");
  add_chat_options(*command, options->chat);
  add_fuse_options(*command, *options);
  add_answer_options(*command, *options);
  CLI::Option* const exact =
      command->add_flag("--exact", options->exact,
                        "Show the answer at once, and run full prefill beside it. If full prefill "
                        "prefers another word, the answer is corrected a moment later: the final "
                        "answer is full prefill's");
  for (const char* name : {"--temperature", "--repetition-penalty", "--frequency-penalty",
                           "--presence-penalty", "--stop", "--logit-bias", "--logprobs",
                           "--json-object", "--json-schema", "--regex", "--grammar", "--tools"}) {
    exact->excludes(command->get_option(name));
  }
  command->add_flag("--compare", options->compare,
                    "Also answer by full prefill and by full reuse: KL, agreement, speed-up");
  command->add_flag("--layers", options->layers, "Show loading and computing layer by layer");
  command->add_flag("--quiet", options->quiet, "Print nothing but the answer");
  add_common_options(*command, options->common);
  command->footer(
      "The prompt is BOS and the system text, the chunks in document order, the question; with\n"
      "--chat the model's chat template arranges them. The answer is streamed to stdout, followed\n"
      "by a table of times and rows; with --json it is one object instead."
      "\n\nExample:\n"
      "  blend ask --model model.gguf --store ./store --docs ./handbook \\\n"
      "            --question \"Who signs the invoices?\" --compare --layers");
  command->callback([options, command] {
    for (const char* name : {"--policy", "--metric", "--ratio", "--check-layer"}) {
      if (command->count(name) > 0) options->given.emplace_back(name);
    }
    options->chat.tools = read_functions(options->functions);
    options->chat.must_call = options->functions.must_call();
    run(*options);
  });
}

}  // namespace blend_cli
