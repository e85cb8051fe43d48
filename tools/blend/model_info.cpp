// blend model info: what a model file holds.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "choices.h"
#include "command.h"
#include "printable.h"
#include "table.h"

namespace blend_cli {
namespace {

struct ModelInfoOptions {
  CommonOptions common;
  ModelChoice model;
};

// What the model's template has a place for.
struct TemplateReads {
  std::vector<std::string> names;
  std::string why_not;  // why it cannot be read; "": it can
};

TemplateReads template_reads(const blendpp::Model& model) {
  TemplateReads out;
  if (*model.info().chat_template == '\0') return out;
  try {
    const blendpp::TemplateInfo info = model.template_info();
    if (info.reads_system != 0) out.names.emplace_back("system");
    if (info.reads_tools != 0) out.names.emplace_back("tools");
    if (info.reads_tool_calls != 0) out.names.emplace_back("tool_calls");
    if (info.reads_documents != 0) out.names.emplace_back("documents");
    if (info.reads_enable_thinking != 0) out.names.emplace_back("enable_thinking");
  } catch (const blendpp::Error& error) {
    out.why_not = error.what();
  }
  return out;
}

std::string template_text(const TemplateReads& reads) {
  if (!reads.why_not.empty()) return "one that cannot be read: " + printable(reads.why_not);
  std::string text;
  for (const std::string& name : reads.names) text += (text.empty() ? "reads " : ", ") + name;
  return (text.empty() ? "one" : text) + " (--json shows it)";
}

void run(const ModelInfoOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Model model = open_model(ctx, options.model);
  const blendpp::ModelInfo info = model.info();
  const std::string fingerprint = hex_text(info.fingerprint, sizeof info.fingerprint);
  const std::vector<blendpp::LoraInfo> loras = model.loras();
  const TemplateReads reads = template_reads(model);
  if (options.common.json) {
    nlohmann::json adapters = nlohmann::json::array();
    for (const blendpp::LoraInfo& lora : loras) {
      adapters.push_back({{"path", lora.path},
                          {"scale", lora.scale},
                          {"rank", lora.rank},
                          {"n_matrices", lora.n_matrices},
                          {"digest", hex_text(lora.digest, sizeof lora.digest)}});
    }
    const nlohmann::json out = {{"architecture", info.architecture},
                                {"name", info.name},
                                {"n_layers", info.n_layers},
                                {"d_model", info.d_model},
                                {"n_heads", info.n_heads},
                                {"n_kv_heads", info.n_kv_heads},
                                {"head_dim", info.head_dim},
                                {"d_ff", info.d_ff},
                                {"n_vocab", info.n_vocab},
                                {"context_length", info.context_length},
                                {"bos_token", info.bos_token},
                                {"eos_token", info.eos_token},
                                {"add_bos", info.add_bos != 0},
                                {"rope_theta", info.rope_theta},
                                {"n_parameters", info.n_parameters},
                                {"weight_dtype", info.weight_dtype},
                                {"weight_bytes", info.weight_bytes},
                                {"kv_bytes_per_token", info.kv_bytes_per_token},
                                {"weights", name_of(weights_choices(), info.weights)},
                                {"backend", ctx.backend()},
                                {"loras", adapters},
                                {"fingerprint", fingerprint},
                                {"chat_template", info.chat_template},
                                {"chat_template_reads", reads.names}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    return;
  }
  const auto number = [](uint64_t value) { return std::to_string(value); };
  Table table({"architecture", info.architecture}, Table::Align::all_left);
  table.add({"name", info.name});
  table.add({"parameters", number(info.n_parameters)});
  table.add({"weights", std::string(info.weight_dtype) + ", " +
                            (info.weights == BLEND_WEIGHTS_MAPPED
                                 ? "mapped"
                                 : bytes_text(info.weight_bytes) + " " +
                                       name_of(weights_choices(), info.weights))});
  table.add({"computes with", ctx.backend()});
  table.add({"layers", number(info.n_layers)});
  table.add({"d_model", number(info.d_model)});
  table.add({"heads", format("%u query, %u key/value, head_dim %u", info.n_heads, info.n_kv_heads,
                             info.head_dim)});
  table.add({"d_ff", number(info.d_ff)});
  table.add({"vocabulary", number(info.n_vocab)});
  table.add({"context", number(info.context_length)});
  table.add({"BOS, EOS", format("%d%s, %d", info.bos_token,
                                info.add_bos != 0 ? " (put in front)" : "", info.eos_token)});
  table.add({"RoPE theta", format("%g", info.rope_theta)});
  table.add({"KV per token", bytes_text(info.kv_bytes_per_token)});
  table.add({"chat template", info.chat_template[0] == '\0' ? "none" : template_text(reads)});
  for (const blendpp::LoraInfo& lora : loras) {
    table.add(
        {"LoRA", format("%s: scale %g, rank %u, %llu matrices", printable(lora.path).c_str(),
                        lora.scale, lora.rank, static_cast<unsigned long long>(lora.n_matrices))});
  }
  table.add({"fingerprint", fingerprint});
  std::cout << table.str();
}

}  // namespace

void register_model_info(CLI::App& model) {
  auto options = std::make_shared<ModelInfoOptions>();
  CLI::App* command = model.add_subcommand("info", "What a model file or directory holds");
  add_model(*command, options->model);
  add_common_options(*command, options->common);
  command->footer("Example:\n  blend model info --model model.gguf --json");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
