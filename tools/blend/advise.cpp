// blend advise: what recomputing costs on this machine, and which storage hides it.
#include <iostream>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "command.h"
#include "eval/output.h"
#include "interrupt.h"
#include "printable.h"
#include "progress.h"
#include "table.h"

namespace blend_cli {
namespace {

struct AdviseOptions {
  CommonOptions common;
  ModelChoice model;
  std::string machine;
  bool measure = false;
  uint64_t max_tokens = 0;  // 0: the library's default
  std::vector<std::string> storages;
  RemoteChoice remote;
  double remote_cost = 0;
  std::string codec = "none";
  blendpp::AdviseOptions advise;
};

struct NamedStorage {
  std::string name;
  blendpp::Storage storage;
};

// NAME=THROUGHPUT[:COST]; the throughput in bytes a second, optionally with k, M or G (1000).
NamedStorage parse_storage(const std::string& text) {
  const auto refuse = [&]() {
    return CommandError(kExitUsage, "--storage " + text +
                                        ": write NAME=BYTES_PER_SECOND[:COST_PER_GB_HOUR], such as "
                                        "nvme=3.2G:0.0001");
  };
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) throw refuse();
  NamedStorage out;
  out.name = text.substr(0, equals);
  try {
    std::string rest = text.substr(equals + 1);
    size_t used = 0;
    out.storage.bytes_per_s = std::stod(rest, &used);
    rest = rest.substr(used);
    if (!rest.empty() && rest[0] != ':') {
      const size_t power = std::string("kMGT").find(rest[0]);
      if (power == std::string::npos) throw refuse();
      for (size_t i = 0; i <= power; ++i) out.storage.bytes_per_s *= 1000;
      rest = rest.substr(1);
    }
    if (rest.empty()) return out;
    if (rest[0] != ':') throw refuse();
    rest = rest.substr(1);
    out.storage.cost_per_gb_hour = std::stod(rest, &used);
    if (used != rest.size()) throw refuse();
  } catch (const std::logic_error&) {  // of stod
    throw refuse();
  }
  return out;
}

// Measures the remote tier from here with chunks that are there; keeps nothing of them.
NamedStorage measure_remote(const blendpp::Context& ctx, const AdviseOptions& options) {
  const TempDirectory folder;
  StoreOptions place;
  place.path = folder.path();
  (void)open_store(ctx, place);  // makes it
  const blendpp::Store store = open_existing_store(ctx, place.path, true, options.remote);
  NamedStorage out{"remote", store.remote_measure()};
  out.storage.cost_per_gb_hour = options.remote_cost;
  return out;
}

std::string remark(uint32_t flags) {
  if ((flags & BLEND_ADVICE_CHEAPEST) != 0) return "the cheapest without delay";
  if ((flags & BLEND_ADVICE_NO_DELAY) != 0) return "no delay";
  if ((flags & BLEND_ADVICE_SLOWER_THAN_PREFILL) != 0) return "slower than computing again";
  return "waits for loading";
}

nlohmann::json to_json(const blendpp::Machine& machine, const std::vector<NamedStorage>& storages,
                       const std::vector<blendpp::Advice>& advice) {
  const blendpp::MachineInfo info = machine.info();
  nlohmann::json prefill = nlohmann::json::array(), list = nlohmann::json::array();
  for (uint64_t i = 0; i < info.n_points; ++i) {
    const auto [tokens, ns] = machine.point(i);
    prefill.push_back({{"n_tokens", tokens}, {"ns", ns}});
  }
  for (size_t i = 0; i < storages.size(); ++i) {
    const blendpp::Advice& a = advice[i];
    list.push_back({{"name", storages[i].name},
                    {"bytes_per_s", storages[i].storage.bytes_per_s},
                    {"cost_per_gb_hour", storages[i].storage.cost_per_gb_hour},
                    {"latency_s", storages[i].storage.latency_s},
                    {"load_ns", a.load_ns},
                    {"recompute_ns", a.recompute_ns},
                    {"hidden_ratio", a.hidden_ratio},
                    {"ratio", a.ratio},
                    {"cost_per_hour", a.cost_per_hour},
                    {"load_bytes", a.load_bytes},
                    {"no_delay", (a.flags & BLEND_ADVICE_NO_DELAY) != 0},
                    {"cheapest", (a.flags & BLEND_ADVICE_CHEAPEST) != 0},
                    {"slower_than_prefill", (a.flags & BLEND_ADVICE_SLOWER_THAN_PREFILL) != 0}});
  }
  return {{"cpu", info.cpu},
          {"n_threads", info.n_threads},
          {"kept", machine.kept()},
          {"prefill", prefill},
          {"storages", list}};
}

void print_tables(const AdviseOptions& options, const blendpp::Machine& machine,
                  const std::vector<NamedStorage>& storages,
                  const std::vector<blendpp::Advice>& advice) {
  const blendpp::MachineInfo info = machine.info();
  std::cout << format("%s, %u threads, measured %s%s\n\n", printable(info.cpu).c_str(),
                      info.n_threads, time_text(info.measured_unix_s).c_str(),
                      machine.kept() ? " (kept)" : "");
  Table prefill({"tokens", "prefill", "at the ratio"});
  for (uint64_t i = 0; i < info.n_points; ++i) {
    const auto [tokens, ns] = machine.point(i);
    prefill.add({std::to_string(tokens), ms_text(ns),
                 ms_text(machine.recompute_ns(tokens, options.advise.ratio))});
  }
  std::cout << prefill.str();
  if (storages.empty()) {
    std::cout << "\nWith --storage NAME=BYTES_PER_SECOND: which storage hides it.\n";
    return;
  }
  std::cout << format("\n%llu tokens, ratio %g, recomputed in %s\n\n",
                      static_cast<unsigned long long>(options.advise.n_tokens),
                      options.advise.ratio, ms_text(advice[0].recompute_ns).c_str());
  std::cout << format("%s as %s, after the check layer\n\n",
                      bytes_text(advice[0].load_bytes).c_str(), options.codec.c_str());
  for (const NamedStorage& s : storages) {
    if (s.storage.latency_s == 0) continue;
    std::cout << format("%s: %s a second, %.2f ms before the first byte\n\n",
                        printable(s.name).c_str(),
                        bytes_text(static_cast<uint64_t>(s.storage.bytes_per_s)).c_str(),
                        s.storage.latency_s * 1e3);
  }
  Table table({"storage", "load", "ratio that hides", "ratio to use", "cost/hour", "remark"});
  for (size_t i = 0; i < storages.size(); ++i) {
    const blendpp::Advice& a = advice[i];
    table.add({storages[i].name, ms_text(a.load_ns), share_text(a.hidden_ratio, 1),
               share_text(a.ratio, 1), format("%.3g", a.cost_per_hour), remark(a.flags)});
  }
  std::cout << table.str();
}

void run(AdviseOptions options) {
  options.advise.codec = value_of(codec_choices(), options.codec);
  std::vector<NamedStorage> storages;
  for (const std::string& text : options.storages) storages.push_back(parse_storage(text));
  const blendpp::Context ctx = make_context(options.common);
  if (!options.remote.url.empty()) storages.push_back(measure_remote(ctx, options));
  const blendpp::Model model = open_model(ctx, options.model);
  ProgressBar bar("Measuring");
  blendpp::MachineOptions how;
  how.flags = options.measure ? BLEND_MACHINE_MEASURE : 0u;
  if (options.max_tokens != 0) how.max_tokens = options.max_tokens;
  how.on_progress = bar.callback();
  how.cancel = interrupt_token();
  const blendpp::Machine machine(model, options.machine, how);
  std::vector<blendpp::Storage> list;
  for (const NamedStorage& d : storages) list.push_back(d.storage);
  std::vector<blendpp::Advice> advice;
  if (!list.empty()) advice = machine.advise(list, options.advise);
  if (options.common.json) {
    std::cout << to_json(machine, storages, advice).dump(2) << '\n';
  } else {
    print_tables(options, machine, storages, advice);
  }
}

}  // namespace

void register_advise(CLI::App& app) {
  auto options = std::make_shared<AdviseOptions>();
  CLI::App* command = app.add_subcommand(
      "advise", "How fast this machine computes, and the cheapest storage that adds no delay");
  add_model(*command, options->model);
  command
      ->add_option("--machine", options->machine,
                   "File that keeps the measurement of this machine; none: measured every time")
      ->type_name("FILE");
  command->add_flag("--measure", options->measure,
                    "Measure again, even if the file has a measurement");
  command->add_option("--max-tokens", options->max_tokens,
                      "Longest prefill that is timed; 0 = 1024");
  command
      ->add_option("--storage", options->storages,
                   "NAME=BYTES_PER_SECOND[:COST_PER_GB_HOUR], such as nvme=3.2G:0.0001; again for "
                   "each")
      ->type_name("STORAGE");
  add_remote(*command, options->remote);
  command
      ->add_option(
          "--remote-cost", options->remote_cost,
          "Cost of the remote tier per GB and hour; its speed is measured with stored chunks")
      ->capture_default_str();
  command->add_option("--tokens", options->advise.n_tokens, "Tokens of the prompt's chunks")
      ->capture_default_str();
  command
      ->add_option("--codec", options->codec,
                   "Codec of the stored chunks (for a codec of varying length, the longest)")
      ->check(CLI::IsMember(names_of(codec_choices())))
      ->capture_default_str();
  command
      ->add_option("--chunk-tokens", options->advise.chunk_tokens,
                   "Tokens of one chunk, which shares a codec's scales; 0 = 512")
      ->capture_default_str();
  command
      ->add_option("--ratio", options->advise.ratio, "Share of the reused rows that is recomputed")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--check-layer", options->advise.check_layer,
                   "Layers before it are computed for all rows; 0 = the paper's formula")
      ->capture_default_str();
  add_common_options(*command, options->common);
  command->footer(
      "Example:\n"
      "  blend advise --model model.gguf --machine machine.txt --tokens 4096 \\\n"
      "               --storage ram=20G:0.004 --storage nvme=3.2G:0.0001 --storage "
      "nas=0.3G:0.00002");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
