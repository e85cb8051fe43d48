// blend embed: texts as vectors, a line of JSON each.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "command.h"
#include "interrupt.h"
#include "read_file.h"
#include "table.h"

namespace blend_cli {
namespace {

// Enough for full products; few enough that lines come soon and memory stays small.
constexpr size_t kAtOnce = 64;

struct EmbedCommand {
  CommonOptions common;
  ModelChoice model;
  std::vector<std::string> texts;
  std::string lines;  // a file; "-": standard input
  std::string pooling = "model";
  blendpp::EmbedOptions options;
};

// Embeds texts in groups and writes their lines in order. Used by one thread.
class Writer {
 public:
  Writer(const blendpp::Model& model, const blendpp::EmbedOptions& options)
      : model_(model), options_(options) {}

  void add(std::string text) {
    texts_.push_back(std::move(text));
    if (texts_.size() == kAtOnce) write();
  }
  void write() {
    const blendpp::Embeddings made = embedded();
    for (size_t i = 0; i < texts_.size(); ++i) {
      const blendpp::Span<const float> vector = made.of(i);
      const nlohmann::json line = {{"index", n_written_++},
                                   {"n_tokens", made.n_tokens[i]},
                                   {"embedding", std::vector<float>(vector.begin(), vector.end())}};
      std::cout << line.dump() << '\n';
    }
    texts_.clear();
  }

 private:
  // A text that fails alone is found by its line.
  blendpp::Embeddings embedded() const {
    try {
      return model_.embed(texts_, options_);
    } catch (const blendpp::Error& error) {
      if (n_written_ == 0 || error.code() == BLEND_E_CANCELLED) throw;
      throw CommandError(exit_code_of(error.code()), format("after %zu texts: ", n_written_) +
                                                         error.what() + " (" + error.name() + ")");
    }
  }

  const blendpp::Model& model_;
  const blendpp::EmbedOptions& options_;
  std::vector<std::string> texts_;
  size_t n_written_ = 0;
};

// The lines of a file, one text each.
void read_lines(const std::string& path, const std::function<void(std::string)>& fn) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) {
      throw CommandError(errno == ENOENT ? kExitNotFound : kExitError,
                         "cannot read '" + path + "': " + std::strerror(errno));
    }
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string line;
  while (std::getline(in, line)) {
    if (line.ends_with('\r')) line.pop_back();
    fn(std::move(line));
    throw_if_interrupted();
  }
  if (in.bad()) throw CommandError(kExitError, "cannot read '" + path + "'");
}

void run(const EmbedCommand& command) {
  const blendpp::Context ctx = make_context(command.common);
  const blendpp::Model model = open_model(ctx, command.model);
  blendpp::EmbedOptions options = command.options;
  options.pooling = value_of(pooling_choices(), command.pooling);
  options.cancel = interrupt_token();
  Writer writer(model, options);
  for (const std::string& text : command.texts) writer.add(text);
  if (!command.lines.empty()) {
    interruptibly([&] { read_lines(command.lines, [&](std::string line) { writer.add(line); }); });
  }
  writer.write();
}

}  // namespace

void register_embed(CLI::App& app) {
  auto options = std::make_shared<EmbedCommand>();
  CLI::App* command =
      app.add_subcommand("embed", "Embeddings of texts, as lines of JSON on stdout");
  add_model(*command, options->model);
  command->add_option("--text", options->texts, "A text; may be given again")->type_name("TEXT");
  command->add_option("--lines", options->lines, "A file with one text a line; -: standard input")
      ->type_name("FILE");
  command
      ->add_option("--pooling", options->pooling,
                   "How the hidden states become one vector; model: as its file says")
      ->check(CLI::IsMember(names_of(pooling_choices())))
      ->capture_default_str();
  command->add_option("--dimensions", options->options.n_dimensions,
                      "Keep the first so many of each vector; 0: all");
  command->add_flag("--unnormalized", options->options.unnormalized,
                    "Keep the vectors' length, instead of 1");
  command->add_flag("--truncate", options->options.truncate,
                    "Take the start of a text that is longer than the model's context");
  add_common_options(*command, options->common);
  command->footer(
      "A line is {\"index\", \"n_tokens\", \"embedding\"}, with or without --json.\n\n"
      "Example:\n"
      "  blend embed --model model.gguf --lines texts.txt > vectors.jsonl");
  command->callback([options, command] {
    if (command->count("--text") == 0 && options->lines.empty()) {
      throw CommandError(kExitUsage, "there is nothing to embed: give --text or --lines");
    }
    run(*options);
  });
}

}  // namespace blend_cli
