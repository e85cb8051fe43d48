// blend store stat: totals of a store.
#include <iostream>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "command.h"
#include "table.h"

namespace blend_cli {
namespace {

struct Options {
  CommonOptions common;
  StoreOptions store;
};

void run(const Options& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store = open_existing_store(ctx, options.store.path, true);
  const blendpp::StoreStat stat = store.stat();
  std::vector<blendpp::CodecStat> codecs;
  for (const auto& choice : codec_choices()) {
    const blendpp::CodecStat of = store.codec_stat(choice.second);
    if (of.n_chunks > 0) codecs.push_back(of);
  }
  // The counters since opening are all zero here: this process did nothing yet.
  if (options.common.json) {
    nlohmann::json by_codec = nlohmann::json::object();
    for (const blendpp::CodecStat& of : codecs) {
      by_codec[name_of(codec_choices(), of.codec)] = {
          {"n_chunks", of.n_chunks}, {"bytes", of.bytes}, {"stored_bytes", of.stored_bytes}};
    }
    const nlohmann::json out = {{"n_chunks", stat.n_chunks},
                                {"n_tokens", stat.n_tokens},
                                {"bytes", stat.bytes},
                                {"codecs", std::move(by_codec)},
                                {"read_mode", name_of(read_choices(), stat.read_mode)},
                                {"file_bytes", stat.file_bytes},
                                {"quota_bytes", stat.quota_bytes}};
    std::cout << out.dump(2) << '\n';
    return;
  }
  Table table({"chunks", std::to_string(stat.n_chunks)});
  table.add({"tokens", std::to_string(stat.n_tokens)});
  table.add({"K and V", bytes_text(stat.bytes)});
  for (const blendpp::CodecStat& of : codecs) {
    const double ratio = static_cast<double>(of.bytes) / static_cast<double>(of.stored_bytes);
    table.add({"  " + name_of(codec_choices(), of.codec),
               format("%s in %llu chunks, %.2f times smaller", bytes_text(of.stored_bytes).c_str(),
                      static_cast<unsigned long long>(of.n_chunks), ratio)});
  }
  table.add({"data file", bytes_text(stat.file_bytes)});
  table.add({"read by", name_of(read_choices(), stat.read_mode)});
  table.add({"quota", bytes_text(stat.quota_bytes)});
  std::cout << table.str();
}

}  // namespace

void register_store_stat(CLI::App& store) {
  auto options = std::make_shared<Options>();
  CLI::App* command = store.add_subcommand("stat", "Totals: chunks, tokens, bytes");
  add_store_path(*command, options->store);
  add_common_options(*command, options->common);
  command->footer("Example:\n  blend store stat --store ./store");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
