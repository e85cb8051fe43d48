// blend verify: may a model be trusted with its profile on these prompts?
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "interrupt.h"
#include "profile_report.h"
#include "progress.h"
#include "samples.h"
#include "table.h"

namespace blend_cli {
namespace {

struct VerifyOptions {
  CommonOptions common;
  ModelChoice model;
  std::string profile;
  SampleOptions samples;
  std::vector<double> ratios = {0, 0.05, 0.1, 0.15, 0.2, 0.3};
  blendpp::VerifyOptions verify;
};

std::string verdict_text(const blendpp::Verdict& verdict, double max_kl, double min_top1) {
  std::string text =
      format("%s at ratio %g: mean KL %.4g (limit %g), top-1 agreement %.1f %% (limit %g %%); ",
             verdict.trusted != 0 ? "trusted" : "NOT trusted", verdict.ratio, verdict.kl_mean,
             max_kl, 100 * verdict.top1, 100 * min_top1);
  const bool luck = verdict.trusted == 0 && verdict.kl_mean <= max_kl && verdict.top1 >= min_top1;
  if (luck) text += "kept here, but not with the margin of a 95 % interval; ";
  return text + (verdict.least_ratio < 0
                     ? "no measured ratio keeps the limits on these prompts"
                     : format("the least that keeps the limits on these prompts is %g",
                              verdict.least_ratio));
}

void run(const VerifyOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  const blendpp::Profile profile(model, options.profile);
  const Samples samples = read_samples(model, options.samples, options.verify.score_tokens);

  blendpp::VerifyOptions verify = options.verify;
  verify.ratios = options.ratios.data();
  verify.n_ratios = options.ratios.size();
  verify.cancel = interrupt_token();
  std::vector<MeasuredLine> lines;
  const blendpp::Verdict verdict = [&] {
    ProgressBar bar("Verifying", ProgressBar::Elsewhere::lines);
    verify.on_progress = bar.callback();
    verify.on_measurement = [&](const blend_measurement& line) {
      lines.emplace_back(line);
      return true;
    };
    return blendpp::verify(model, profile, samples.prompts, verify);
  }();
  const blendpp::ProfileInfo info = profile.info();
  // A profile that trusts no ratio has full prefill's, which these prompts would always keep.
  const bool trusted = info.trusted != 0;
  const double max_kl = verify.max_kl < 0 ? info.max_kl : verify.max_kl;
  const double min_top1 = verify.min_top1 < 0 ? info.min_top1 : verify.min_top1;
  if (options.common.json) {
    const nlohmann::json out = {{"model", options.model.path},
                                {"profile", profile_json(model, profile)},
                                {"data", samples.source},
                                {"n_samples", samples.prompts.size()},
                                {"trusted", trusted && verdict.trusted != 0},
                                {"ratio", verdict.ratio},
                                {"kl_mean", verdict.kl_mean},
                                {"top1", verdict.top1},
                                {"least_ratio", verdict.least_ratio},
                                {"max_kl", max_kl},
                                {"min_top1", min_top1},
                                {"table", measurements_json(model, lines)}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } else {
    std::cout << measurements_table(model, lines, max_kl, min_top1) << "* keeps the limits\n\n";
    if (trusted) std::cout << verdict_text(verdict, max_kl, min_top1) << '\n';
    std::cout << costly_codecs_text(profile);
  }
  if (!trusted) {
    throw CommandError(
        kExitUntrusted,
        "the profile trusts no ratio, so there is nothing to verify: calibrate again "
        "with more samples, other ratios or wider limits (--max-kl, --min-top1)");
  }
  if (verdict.trusted == 0) {
    throw CommandError(kExitUntrusted, "the profile is not to be trusted on these prompts");
  }
}

}  // namespace

void register_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand(
      "verify", "Measure a profile on other prompts: may the model be trusted at its ratio?");
  add_model(*command, options->model);
  command
      ->add_option("--profile", options->profile,
                   "Profile that blend calibrate wrote; default: the one beside the model")
      ->type_name("FILE");
  add_sample_options(*command, options->samples);
  command->add_option("--ratios", options->ratios, "Ratios to measure besides the profile's own")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("LIST")
      ->capture_default_str();
  command
      ->add_option("--score-tokens", options->verify.score_tokens,
                   "Tokens of full prefill's answer at which distributions are compared")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      ->add_option("--max-kl", options->verify.max_kl,
                   "Trusted up to this mean KL from full prefill, in nats; default: the profile's")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--min-top1", options->verify.min_top1,
                   "and from this share of agreeing likeliest tokens on; default: the profile's")
      ->check(CLI::Range(0.0, 1.0));
  add_common_options(*command, options->common);
  command->footer(
      "Ends with 0 when mean KL and top-1 agreement keep the limits at the profile's ratio, with "
      "5\n"
      "when they do not.\n\n"
      "Example:\n"
      "  blend verify --model model.gguf --profile model.profile --data other.jsonl");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
