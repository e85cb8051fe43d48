// blend eval: questions over chunks -> how well each policy keeps full prefill's answers.
#include <cmath>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "choices.h"
#include "command.h"
#include "dataset.h"
#include "eval/options.h"
#include "eval/output.h"
#include "eval/page.h"
#include "eval/report.h"
#include "eval/run.h"
#include "eval/summary.h"
#include "progress.h"

namespace blend_cli {
namespace {

// A temporary store is emptied when it has grown to this.
constexpr uint64_t kTrimBytes = uint64_t{2} << 30;

struct EvalOptions {
  CommonOptions common;  // its json is not used: --json takes a file here
  ModelChoice model;
  StoreOptions store;
  std::string data;
  size_t limit = 0;
  std::string group_by;
  std::vector<std::string> policies = {"full", "reuse", "attention", "hkvd"};
  std::vector<std::string> metrics = {"v_weighed"};
  std::vector<double> ratios = {0.05, 0.15, 0.3};
  std::vector<std::string> records = {"head"};
  std::vector<std::string> codecs;
  std::string norm = "l2";
  std::vector<std::string> ape = {"0.9:0.9"};
  EvalSelection selection;
  uint32_t check_layer = 1;
  std::vector<double> flops;
  bool unguarded = false;
  std::string profile;
  std::string reference_weights;
  uint32_t max_tokens = 32;
  PromptForm form;
  std::optional<std::string> answer_stop;
  bool floor = true;
  bool shift = true;
  std::optional<uint64_t> shuffle_seed;
  uint64_t seed = 0;
  size_t repeats = 1;
  std::string json;
  std::string html;
};

// The command as it was given, for the files.
std::string command_of(const CLI::App& command) {
  std::vector<std::string> arguments = {"blend", command.get_name()};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    std::string value;
    for (const std::string& part : option->results()) {
      if (!value.empty()) value += ',';
      value += part;
    }
    arguments.insert(arguments.end(), {option->get_name(), value});
  }
  return shell_command(arguments);
}

EvalPlan plan_of(const EvalOptions& options) {
  EvalPlan plan;
  plan.prompt.form = options.form;
  // With chat the end of the turn ends an answer.
  plan.prompt.limits.stop =
      unescaped(options.answer_stop.value_or(options.form.chat.wanted ? "" : "\\n"));
  plan.prompt.limits.max_tokens = options.max_tokens;
  plan.floor = options.floor;
  plan.shift = options.shift;
  std::vector<std::string> records;
  for (const std::string& list : options.records) {
    for (std::string& kind : split_record_kinds(list)) records.push_back(std::move(kind));
  }
  EvalSelection selection = options.selection;
  selection.norm = value_of(norm_choices(), options.norm);
  selection.ape.clear();
  for (const std::string& setting : options.ape) selection.ape.push_back(parse_ape(setting));
  // With a budget a ratio is what it buys.
  plan.configs = make_configs(options.policies, options.metrics,
                              options.flops.empty() ? options.ratios : std::vector<double>{0.0},
                              records, options.check_layer, selection);
  plan.repeats = options.repeats;
  plan.showcase = showcase_of(plan.configs);
  plan.trim_bytes = options.store.path.empty() ? kTrimBytes : 0;
  return plan;
}

EvalContext context_of(const EvalOptions& options, const CLI::App& command,
                       const blendpp::Model& model) {
  EvalContext context;
  context.model_path = options.model.path;
  context.data_path = options.data;
  context.command = command_of(command);
  context.kv_dtype = options.store.kv_dtype;
  context.codec = options.store.codec;
  context.codec_step = options.store.codec_step;
  context.cache_dtype = options.common.cache_dtype;
  context.seed = options.seed;
  context.limit = options.limit;
  context.group_by = options.group_by;
  context.shuffled = options.shuffle_seed.has_value();
  context.shuffle_seed = options.shuffle_seed.value_or(0);
  context.threads = options.common.threads;
  context.reference_weights = options.reference_weights;
  context.model = model.info();
  context.model_name = context.model.name;
  return context;
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

// The processor as the system names it, how many of its CPUs there are, and what computes.
std::string machine_name(const blendpp::Context& ctx) {
  std::ifstream file("/proc/cpuinfo");
  std::string name;
  for (std::string line; name.empty() && std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      name = line.substr(colon + 2);
  }
  return (name.empty() ? "a processor without a name" : name) + ", " +
         std::to_string(std::thread::hardware_concurrency()) + " CPUs, " + ctx.backend();
}

void run(const EvalOptions& options, const CLI::App& command) {
  EvalPlan plan = plan_of(options);
  std::vector<Record> records = read_dataset(options.data, options.limit, options.group_by);
  // Similar chunks are looked for in the whole file, however few of its questions are asked.
  for (Record& record : read_dataset(options.data, 0)) {
    for (std::string& chunk : record.chunks) plan.corpus.push_back(std::move(chunk));
  }
  if (options.shuffle_seed) {
    for (size_t i = 0; i < records.size(); ++i)
      shuffle_chunks(records[i], *options.shuffle_seed, i);
  }
  const bool json_on_stdout = options.json == "-";
  std::optional<OutputFile> json_file;
  if (!options.json.empty() && !json_on_stdout) json_file.emplace(options.json);
  std::optional<OutputFile> html_file;
  if (!options.html.empty()) html_file.emplace(options.html);

  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  std::optional<blendpp::Context> reference_ctx;
  std::optional<blendpp::Model> reference;
  if (!options.reference_weights.empty()) {
    CommonOptions common = options.common;
    common.cache_dtype = "auto";
    plan.reference = &reference.emplace(
        open_model(reference_ctx.emplace(make_context(common)),
                   {options.model.path, options.reference_weights, options.model.loras}));
  }
  std::optional<blendpp::Profile> profile;
  if (!options.profile.empty()) {
    plan.profile = &profile.emplace(model, options.profile);
    std::vector<EvalConfig> profile_configs;
    add_profile_configs(*profile, options.policies,
                        options.flops.empty() ? options.ratios : std::vector<double>{0.0},
                        options.unguarded, profile_configs);
    plan.configs.insert(plan.configs.end(), profile_configs.begin(), profile_configs.end());
  }
  plan.configs = with_codecs(plan.configs, options.codecs);
  plan.showcase = showcase_of(plan.configs);
  if (!options.flops.empty()) plan.configs = with_budgets(plan.configs, options.flops);
  // Declared before the store: removed when that is closed.
  std::optional<TempDirectory> temporary;
  StoreOptions place = options.store;
  if (place.path.empty()) place.path = temporary.emplace().path();
  place.most_variants = UINT64_MAX;  // the questions give a chunk any number of predecessors
  const blendpp::Store store = open_store(ctx, place);
  if (profile) store.set_codec_profile(*profile);

  if (!options.flops.empty()) {
    for (const std::string& why : fit_ratios(model, store, records, plan)) print_note(why);
    plan.showcase = showcase_of(plan.configs);
  }
  const EvalResult result = run_eval(model, store, records, plan);
  const EvalSummary summary = summarise(plan, records, result, options.seed);
  EvalContext context = context_of(options, command, model);
  if (profile) context.layer_steps = profile->layer_steps();

  (json_on_stdout ? std::cerr : std::cout) << summary_table(context, summary, result);
  for (const Summary& s : summary.configs) {
    if (s.n_misses == 0) continue;
    print_note(config_name(s.config) + ", " + s.config.records + ": " + std::to_string(s.n_misses) +
               " chunks were not found and prefilled within the fuse; give the store more room");
  }
  nlohmann::json report = eval_json(context, plan, records, result, summary);
  report["date"] = utc_date();
  report["machine"] = machine_name(ctx);
  if (!options.json.empty()) {
    // Answers may be cut inside a UTF-8 sequence.
    const std::string text =
        report.dump(json_on_stdout ? 2 : 1, ' ', false, nlohmann::json::error_handler_t::replace) +
        '\n';
    if (json_on_stdout) {
      std::cout << text;
    } else {
      json_file->commit(text);
    }
  }
  if (html_file) {
    report["page"] = page_json(plan, records, result, [&](int32_t token) {
      return model.detokenize({token}, BLEND_TOKENIZE_RAW | BLEND_TOKENIZE_SPECIAL);
    });
    html_file->commit(page_html(report));
  }
}

void add_what_is_compared(CLI::App& command, EvalOptions& options) {
  command
      .add_option("--policies", options.policies,
                  "Any of full, reuse, hkvd, first_k, random, question, context_impact, probe, "
                  "cascade, attention, ape, and unions such as hkvd:0.7+first_k:0.3 and hkvd+ape")
      ->delimiter(',')
      ->check(check_policy)
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--ratios", options.ratios,
                  "Recomputed shares of the reused rows; fidelity: the default of a fuse, with a "
                  "store that has checked no answers yet")
      ->delimiter(',')
      ->transform(CLI::Validator(
          [](std::string& text) -> std::string {
            if (text == "fidelity") text = format("%g", BLEND_RATIO_FIDELITY);
            double ratio = NAN;
            const bool number = CLI::detail::lexical_cast(text, ratio);
            return number && ((ratio >= 0 && ratio <= 1) || ratio == BLEND_RATIO_FIDELITY)
                       ? ""
                       : "'" + text + "' is neither in 0 .. 1 nor fidelity";
          },
          ""))
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--flops", options.flops,
                  "Budgets, shares of full prefill's FLOPs, instead of --ratios: each policy "
                  "gets the ratio that costs as much")
      ->delimiter(',')
      ->check(CLI::Range(0.001, 1.0))
      ->type_name("LIST");
  command.add_flag("--unguarded", options.unguarded,
                   "With --profile: its drift correction without the guard as well");
  command
      .add_option(
          "--metrics", options.metrics,
          "Deviations of v, k or kv, for hkvd and question; for hkvd also v_weighed, k_weighed, "
          "kv_weighed: times the attention that a row gets inside its chunk")
      ->delimiter(',')
      ->check(CLI::IsMember(names_of(metric_choices())))
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--records", options.records,
                  "How chunks are stored, each kind apart: alone (prefilled after nothing), head "
                  "(after all that precedes the first chunk), predecessor (after the head and the "
                  "chunk before it, with other texts before that if it is short), similar:M (the "
                  "mean over M prefills among the chunks "
                  "of the data that are most like it, as blend precompute stores a corpus), "
                  "joined:M (after "
                  "the M chunks that are most like it, one after the other), preceding:M (the mean "
                  "over M prefills, each after the head "
                  "and one of the M chunks before it), bos, text:...")
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--codecs", options.codecs,
                  "Codecs of the chunks, each with chunks of its own: their size, and how much "
                  "they change the result compared with the first of none and zstd in the list")
      ->delimiter(',')
      ->check(CLI::IsMember(names_of(codec_choices())))
      ->type_name("LIST")
      ->excludes("--flops");
  command
      .add_option("--profile", options.profile,
                  "Profile written by blend calibrate: adds its way of fusing, plain and with "
                  "its drift correction, at the same ratios and its own, and --policies that "
                  "measure at its check layer; codec rans uses its scale for each layer")
      ->type_name("FILE");
  command
      .add_option("--reference-weights", options.reference_weights,
                  "Compare with full prefill of the same model with weights kept in this way and "
                  "the default --cache-dtype, e.g. to see what --weights int8 costs")
      ->check(CLI::IsMember(names_of(weights_choices())));
  command
      .add_option("--check-layer", options.check_layer,
                  "The layer at which deviations are measured")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--checks", options.selection.checks,
                  "Numbers of check layers from --check-layer on; more than 1: gradual filtering")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--norm", options.norm, "Deviations as a sum of squares (l2) or magnitudes (l1)")
      ->check(CLI::IsMember(names_of(norm_choices())))
      ->capture_default_str();
  command.add_flag("--relative", options.selection.relative,
                   "Divide a deviation by the stored row's own size");
  command
      .add_option("--ape", options.ape,
                  "Attention temperatures and scales to try ape with, as 0.9:0.9,1:0.8")
      ->delimiter(',')
      ->check(check_ape)
      ->type_name("LIST")
      ->capture_default_str();
  command.add_option("--policy-seed", options.selection.seed, "Seed for policy random")
      ->capture_default_str();
}

void add_prompt(CLI::App& command, EvalOptions& options) {
  add_prompt_form(command, options.form);
  command
      .add_option(
          "--answer-stop", options.answer_stop,
          "The answer ends before this text, besides the end of a turn and --max-tokens; '' "
          "for none. Default: \\n, with --chat none")
      ->type_name("TEXT");
  command.add_option("--max-tokens", options.max_tokens, "Maximum tokens of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_flag("--shift,!--no-shift", options.shift,
                   "Shift the rows that are not recomputed by what the recomputed rows of their "
                   "chunk moved by (policy attention; default: on)");
  command.add_flag("--floor,!--no-floor", options.floor,
                   "Also ask without any chunk, to see what the model knows without reading "
                   "(default: on)");
}

}  // namespace

void register_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command =
      app.add_subcommand("eval", "Measure what fusing costs in quality, over a set of questions");
  add_model(*command, options->model);
  command
      ->add_option("--data", options->data,
                   "Questions: JSON lines or one array of {\"chunks\" or \"ctxs\", \"question\", "
                   "\"answers\"}")
      ->required()
      ->type_name("FILE");
  command->add_option("--limit", options->limit, "Take the first N questions; 0: all")
      ->type_name("N");
  command
      ->add_option("--group-by", options->group_by,
                   "Also count right answers for each value that the records have under this key, "
                   "e.g. hops")
      ->type_name("KEY");
  command
      ->add_option("--shuffle-chunks", options->shuffle_seed,
                   "Put each question's chunks in an order drawn with this seed")
      ->type_name("SEED");
  add_what_is_compared(*command, *options);
  add_prompt(*command, *options);
  command
      ->add_option("--store", options->store.path,
                   "Directory of the chunk store; default: a temporary one, removed at the end")
      ->type_name("DIR");
  command
      ->add_option("--kv-dtype", options->store.kv_dtype,
                   "Type of K and V in new chunks: auto (bf16 for a bf16 model, else f16), f32, "
                   "f16 or bf16")
      ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}))
      ->capture_default_str();
  add_codec(*command, options->store);
  command
      ->add_option("--repeats", options->repeats,
                   "Runs of each configuration and question; their median is the TTFT")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed for the confidence intervals")
      ->capture_default_str();
  command
      ->add_option("--json", options->json,
                   "Write every figure, with a record for each question; - for stdout (the table "
                   "then goes to stderr)")
      ->type_name("FILE");
  command->add_option("--html", options->html, "Write a report with pictures, one file")
      ->type_name("FILE");
  command
      ->add_option("--threads", options->common.threads,
                   "Compute threads; 0 = the CPUs of this process")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  add_backend_option(*command, options->common);
  command->footer(
      "Full prefill is always run: it is the reference. The prompt is BOS and the system text,\n"
      "the chunks in the order of the record, the question, each tokenized on its own; with\n"
      "--chat the model's template arranges them.\n\n"
      "Example:\n"
      "  blend eval --model model.gguf --data questions.jsonl --metrics v,k \\\n"
      "             --ratios 0.05,0.15,0.3 --records alone,head \\\n"
      "             --json result.json --html result.html");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace blend_cli
