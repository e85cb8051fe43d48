// blend calibrate: sample prompts -> a profile of the model.
#include <iostream>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "command.h"
#include "corpus.h"
#include "interrupt.h"
#include "printable.h"
#include "profile_report.h"
#include "progress.h"
#include "samples.h"
#include "table.h"

namespace blend_cli {
namespace {

const Choices kKvDtypes = {{"auto", BLEND_DTYPE_AUTO},
                           {"f32", BLEND_DTYPE_F32},
                           {"f16", BLEND_DTYPE_F16},
                           {"bf16", BLEND_DTYPE_BF16}};
const Choices kInputs = {{"none", 0},
                         {"deviation", BLEND_DRIFT_DEVIATION},
                         {"fresh", BLEND_DRIFT_FRESH},
                         {"constant", BLEND_DRIFT_CONSTANT}};

struct CalibrateOptions {
  CommonOptions common;
  ModelChoice model;
  SampleOptions samples;
  std::string out;
  std::vector<std::string> policies = {"attention", "hkvd"};
  std::vector<uint32_t> check_layers = {1};
  std::vector<std::string> metrics = {"v_weighed"};
  std::vector<double> ratios = {0, 0.05, 0.1, 0.15, 0.2, 0.3};
  std::vector<std::string> chunk_prefixes;
  std::string kv_dtype = "auto";
  std::vector<std::string> inputs = {"deviation", "fresh", "constant"};
  uint32_t contexts = 4;
  blendpp::CalibrateOptions calibrate;  // members with the library's defaults
};

void run(const CalibrateOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  const Samples samples = read_samples(model, options.samples, options.calibrate.score_tokens);

  blendpp::CalibrateOptions calibrate = options.calibrate;
  std::vector<uint32_t> policies, metrics;
  for (const std::string& name : options.policies) {
    policies.push_back(value_of(policy_choices(), name));
  }
  calibrate.policies = policies.data();
  calibrate.n_policies = policies.size();
  calibrate.check_layers = options.check_layers.data();
  calibrate.n_check_layers = options.check_layers.size();
  for (const std::string& name : options.metrics)
    metrics.push_back(value_of(metric_choices(), name));
  calibrate.metrics = metrics.data();
  calibrate.n_metrics = metrics.size();
  calibrate.ratios = options.ratios.data();
  calibrate.n_ratios = options.ratios.size();
  std::vector<blendpp::Tokens> prefixes;
  for (const std::string& list : options.chunk_prefixes) {
    for (const std::string& spec : split_chunk_prefixes(list)) {
      prefixes.push_back(chunk_prefix_tokens(model, spec));
    }
  }
  std::vector<blend_token_list> prefix_list;
  for (const blendpp::Tokens& prefix : prefixes)
    prefix_list.push_back({prefix.data(), prefix.size()});
  calibrate.chunk_prefixes = prefix_list.data();
  calibrate.n_chunk_prefixes = prefix_list.size();
  calibrate.kv_dtype = value_of(kKvDtypes, options.kv_dtype);
  calibrate.drift_inputs = 0;
  for (const std::string& input : options.inputs)
    calibrate.drift_inputs |= value_of(kInputs, input);
  calibrate.correction = calibrate.drift_inputs == 0 ? BLEND_CORRECTION_OFF : BLEND_CORRECTION_AUTO;
  calibrate.n_contexts = options.contexts;
  calibrate.cancel = interrupt_token();

  std::vector<MeasuredLine> lines;
  bool trusted = false;
  {
    ProgressBar bar("Calibrating", ProgressBar::Elsewhere::lines);
    calibrate.on_progress = bar.callback();
    calibrate.on_measurement = [&](const blend_measurement& line) {
      lines.emplace_back(line);
      return true;
    };
    trusted = blendpp::calibrate(model, samples.prompts, options.out, calibrate);
  }
  const blendpp::Profile profile(model, options.out);
  if (options.common.json) {
    const nlohmann::json out = {{"model", options.model.path},
                                {"data", samples.source},
                                {"n_samples", samples.prompts.size()},
                                {"n_too_long", samples.n_too_long},
                                {"score_tokens", calibrate.score_tokens},
                                {"ridge", profile.info().ridge},
                                {"trusted", trusted},
                                {"profile", profile_json(model, profile)},
                                {"table", measurements_json(model, lines)}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    return;
  }
  if (samples.n_too_long > 0) {
    print_note(
        format("%zu samples are left out: they outgrow the model's context", samples.n_too_long));
  }
  std::cout << measurements_table(model, lines, calibrate.max_kl, calibrate.min_top1)
            << "* keeps the limits\n\n"
            << profile_text(model, profile) << costly_codecs_text(profile) << "\nwritten "
            << (options.out.empty() ? "beside the model" : "to " + printable(options.out)) << '\n';
}

void add_search(CLI::App& command, CalibrateOptions& options) {
  command
      .add_option("--chunk-prefixes", options.chunk_prefixes,
                  "The texts before chunks while they are prefilled: any of none, bos, text:...; "
                  "default: the prompt head of the samples")
      ->type_name("LIST");
  command
      .add_option("--contexts", options.contexts,
                  "Chunks are measured as blend precompute stores them: in the context of as many "
                  "of the samples' chunks that are most similar; 0: after the chunk prefix alone")
      ->check(CLI::Range(0u, BLEND_MOST_CONTEXTS))
      ->capture_default_str();
  command
      .add_option("--metrics", options.metrics,
                  "Deviations of v, k or kv, weighed by the attention to a row or not")
      ->delimiter(',')
      ->check(CLI::IsMember(names_of(metric_choices())))
      ->type_name("LIST")
      ->capture_default_str();
  command.add_option("--ratios", options.ratios, "Recomputed shares of the reused rows")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--policies", options.policies,
                  "Policies that choose the rows: hkvd, cascade, attention; the last two need "
                  "samples with a question")
      ->delimiter(',')
      ->check(CLI::IsMember({"hkvd", "cascade", "attention"}))
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--check-layer,--check-layers", options.check_layers,
                  "The layers at which deviations are measured")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("LIST")
      ->capture_default_str();
  command.add_option("--kv-dtype", options.kv_dtype, "Type of K and V in stored chunks")
      ->check(CLI::IsMember(names_of(kKvDtypes)))
      ->capture_default_str();
}

void add_drift(CLI::App& command, CalibrateOptions& options) {
  command
      .add_option("--drift-inputs", options.inputs,
                  "Inputs of the drift correction: deviation, plus fresh (K and V) and constant; "
                  "none: no correction")
      ->delimiter(',')
      ->check(CLI::IsMember(names_of(kInputs)))
      ->type_name("LIST")
      ->capture_default_str();
  command
      .add_option("--drift-rank", options.calibrate.drift_rank,
                  "Rank of the drift maps; lower is cheaper; 0: full matrices")
      ->capture_default_str();
  command
      .add_option("--ridge", options.calibrate.ridge,
                  "Ridge of the fit, relative to each input's own size; default: "
                  "cross-validation chooses")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace

void register_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = app.add_subcommand(
      "calibrate",
      "Measure what fusing costs a model in quality, fit its drift correction, write "
      "its profile");
  add_model(*command, options->model);
  add_sample_options(*command, options->samples);
  command
      ->add_option("--out", options->out,
                   "The profile; replaced whole. Default: beside the model, where other commands "
                   "find it: MODEL.profile, of a directory MODEL/blend.profile")
      ->type_name("FILE");
  add_search(*command, *options);
  add_drift(*command, *options);
  command
      ->add_option("--score-tokens", options->calibrate.score_tokens,
                   "Tokens of full prefill's answer at which distributions are compared")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      ->add_option("--max-kl", options->calibrate.max_kl,
                   "A ratio is trusted up to this mean KL from full prefill, in nats")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--min-top1", options->calibrate.min_top1,
                   "and from this share of agreeing likeliest tokens on")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--step-samples", options->calibrate.step_samples,
                   "Maximum number of samples for fitting the layers' scales of codec rans, and "
                   "as many for judging them; 0: all layers alike")
      ->capture_default_str();
  add_common_options(*command, options->common);
  command->footer(
      "Fits the drift maps on every other sample and measures on the rest. Among the ways of\n"
      "fusing that keep the limits, with the margin of the 95 % interval, it finds the one with\n"
      "the fewest FLOPs; of those with up to 1.5 times as many it takes the one with the least\n"
      "KL. Then it rounds each layer of the chunks by itself, to find layers that codec rans may\n"
      "round coarsely.\n\n"
      "Example:\n"
      "  blend calibrate --model model.gguf --data questions.jsonl\n"
      "  blend verify --model model.gguf --data others.jsonl\n"
      "  blend precompute --model model.gguf ...");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
