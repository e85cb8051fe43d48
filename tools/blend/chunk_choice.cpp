#include "chunk_choice.h"

#include <filesystem>
#include <system_error>

#include "command.h"
#include "table.h"

namespace blend_cli {

void add_chunk_choice(CLI::App& command, ChunkChoice& choice) {
  command
      .add_option("--label", choice.label,
                  "Only chunks whose label fits, e.g. manual.pdf (all its parts) or 'docs/*.md'")
      ->type_name("PATTERN");
  add_tags(command, choice.tags, "Only chunks with a tag that fits, e.g. draft or 'lang=*'");
  command
      .add_option("--model", choice.model,
                  "Only this model's chunks: its file or directory, or the first hexadecimal "
                  "digits of its fingerprint")
      ->type_name("MODEL");
  command.add_flag("--unlabelled", choice.unlabelled, "Only chunks without a label");
  add_only_tenant(command, choice.tenant);
}

void list_chunks(const blendpp::Context& ctx, const blendpp::Store& store,
                 const ChunkChoice& choice, const blendpp::ChunkFn& fn) {
  std::string model = choice.model;
  std::error_code error;
  if (!model.empty() && std::filesystem::exists(model, error)) {
    const blend_model_info info = blendpp::Model(ctx, model).info();
    model = hex_text(info.fingerprint, sizeof info.fingerprint);
  } else if (model.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw CommandError(kExitNotFound, "--model '" + model +
                                          "' is neither a file or directory nor hexadecimal digits "
                                          "of a fingerprint; `blend store ls --json` shows those");
  }
  const std::string tags = joined_tags(choice.tags);
  blendpp::FilterOptions filter;
  filter.label = choice.label.c_str();
  filter.tags = tags.c_str();
  filter.model = model.c_str();
  if (choice.unlabelled) filter.flags = BLEND_FILTER_UNLABELLED;
  filter.tenant = choice.tenant;
  store.list(filter, false, fn);
}

CLI::Option* add_tags(CLI::App& command, std::vector<std::string>& tags, const std::string& says) {
  return command.add_option("--tag", tags, says + "; may be given several times")
      ->check([](const std::string& tag) -> std::string {
        if (!tag.empty() && tag.find(' ') == std::string::npos) return {};
        return "'" + tag + "' is not one word";
      })
      ->type_name("TAG")
      ->allow_extra_args(false);
}

std::string joined_tags(const std::vector<std::string>& tags) {
  std::string all;
  for (const std::string& tag : tags) all += (all.empty() ? "" : " ") + tag;
  return all;
}

}  // namespace blend_cli
