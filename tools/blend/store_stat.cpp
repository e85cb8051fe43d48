// blend store stat: totals of a store.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "choices.h"
#include "command.h"
#include "fidelity_report.h"
#include "interrupt.h"
#include "table.h"

namespace blend_cli {
namespace {

using ull = unsigned long long;

struct StoreStatOptions {
  CommonOptions common;
  StoreOptions store;
  double watch_s = 0;  // 0: once
  bool metrics = false;
};

// Changes between two looks of --watch, from the totals of all processes.
struct Passed {
  uint64_t ram_hits = 0, disk_hits = 0, misses = 0, evicted = 0;
};

Passed between(const blendpp::StoreReport& before, const blendpp::StoreReport& now) {
  return {now.total_ram_hits - before.total_ram_hits, now.total_disk_hits - before.total_disk_hits,
          now.total_misses - before.total_misses, now.evicted_chunks - before.evicted_chunks};
}

std::string rates_text(const Passed& p) {
  const uint64_t all = p.ram_hits + p.disk_hits + p.misses;
  if (all == 0) return "none yet";
  return format("%llu: %s memory, %s disk, %s missed", static_cast<ull>(all),
                share_text(static_cast<double>(p.ram_hits), static_cast<double>(all)).c_str(),
                share_text(static_cast<double>(p.disk_hits), static_cast<double>(all)).c_str(),
                share_text(static_cast<double>(p.misses), static_cast<double>(all)).c_str());
}

std::vector<blendpp::CodecStat> codecs_of(const blendpp::Store& store) {
  std::vector<blendpp::CodecStat> codecs;
  for (const auto& choice : codec_choices()) {
    const blendpp::CodecStat of = store.codec_stat(choice.second);
    if (of.n_chunks > 0) codecs.push_back(of);
  }
  return codecs;
}

// The counters since opening are all zero here: this process did nothing yet.
nlohmann::json json_of(const blendpp::StoreReport& stat,
                       const std::vector<blendpp::CodecStat>& codecs) {
  nlohmann::json by_codec = nlohmann::json::object();
  for (const blendpp::CodecStat& of : codecs) {
    by_codec[name_of(codec_choices(), of.codec)] = {
        {"n_chunks", of.n_chunks}, {"bytes", of.bytes}, {"stored_bytes", of.stored_bytes}};
  }
  return {{"n_chunks", stat.n_chunks},
          {"n_tokens", stat.n_tokens},
          {"bytes", stat.bytes},
          {"stored_bytes", stat.stored_bytes},
          {"codecs", std::move(by_codec)},
          {"read_mode", name_of(read_choices(), stat.read_mode)},
          {"file_bytes", stat.file_bytes},
          {"quota_bytes", stat.quota_bytes},
          {"pinned_chunks", stat.pinned_chunks},
          {"pinned_bytes", stat.pinned_bytes},
          {"ram_hits", stat.total_ram_hits},
          {"disk_hits", stat.total_disk_hits},
          {"misses", stat.total_misses},
          {"n_texts", stat.n_texts},
          {"varied_texts", stat.varied_texts},
          {"n_variants", stat.n_variants},
          {"variant_bytes", stat.variant_bytes},
          {"variant_hits", stat.total_variant_hits},
          {"evicted_chunks", stat.evicted_chunks},
          {"evicted_bytes", stat.evicted_bytes},
          {"expired_chunks", stat.expired_chunks},
          {"oldest_use_unix_s", stat.oldest_use_unix_s},
          {"newest_use_unix_s", stat.newest_use_unix_s}};
}

std::string texts_text(const blendpp::StoreReport& stat) {
  if (stat.n_texts == 0 && stat.n_chunks > 0) {
    return "not counted yet: the next command that opens the store for writing counts them";
  }
  if (stat.varied_texts == 0) return std::to_string(stat.n_texts);
  return format("%llu; %llu of them with %.1f variants each", static_cast<ull>(stat.n_texts),
                static_cast<ull>(stat.varied_texts),
                static_cast<double>(stat.n_variants) / static_cast<double>(stat.varied_texts));
}

// Chunks beside the plain record of their text, and how many of the hits were theirs.
std::string variants_text(const blendpp::StoreReport& stat) {
  const uint64_t hits = stat.total_ram_hits + stat.total_disk_hits;
  return format("%llu chunks, %s; %llu of %llu hits", static_cast<ull>(stat.n_variants),
                bytes_text(stat.variant_bytes).c_str(), static_cast<ull>(stat.total_variant_hits),
                static_cast<ull>(hits));
}

std::string text_of(const blendpp::StoreReport& stat,
                    const std::vector<blendpp::CodecStat>& codecs) {
  Table table({"chunks", std::to_string(stat.n_chunks)});
  table.add({"tokens", std::to_string(stat.n_tokens)});
  table.add({"K and V", bytes_text(stat.bytes)});
  for (const blendpp::CodecStat& of : codecs) {
    const double ratio = static_cast<double>(of.bytes) / static_cast<double>(of.stored_bytes);
    table.add({"  " + name_of(codec_choices(), of.codec),
               format("%s in %llu chunks, %.2f times smaller", bytes_text(of.stored_bytes).c_str(),
                      static_cast<ull>(of.n_chunks), ratio)});
  }
  table.add({"texts", texts_text(stat)});
  table.add({"variants", variants_text(stat)});
  table.add({"of the quota", bytes_text(stat.stored_bytes)});
  table.add({"quota", bytes_text(stat.quota_bytes)});
  table.add({"data file", bytes_text(stat.file_bytes)});
  table.add({"read by", name_of(read_choices(), stat.read_mode)});
  table.add({"pinned", format("%llu chunks, %s", static_cast<ull>(stat.pinned_chunks),
                              bytes_text(stat.pinned_bytes).c_str())});
  table.add({"look-ups", rates_text(between(blendpp::StoreReport(), stat))});
  table.add(
      {"evicted",
       format("%llu chunks, %s; %llu had expired", static_cast<ull>(stat.evicted_chunks),
              bytes_text(stat.evicted_bytes).c_str(), static_cast<ull>(stat.expired_chunks))});
  if (stat.oldest_use_unix_s != 0) {
    table.add({"last used", time_text(stat.oldest_use_unix_s) + " .. " +
                                time_text(stat.newest_use_unix_s) + " UTC"});
  }
  return table.str();
}

// Problems of the remote tier's servers; empty: all answer, and accept us.
std::string ask_remote(const blendpp::Store& store) {
  try {
    store.remote_check();
    return {};
  } catch (const blendpp::Error& error) {
    return error.what();
  }
}

void print_remote(const blendpp::Store& store, const std::string& error) {
  const blendpp::RemoteStat stat = store.remote_stat();
  Table table({"remote tier", error.empty() ? "answers" : error});
  table.add({"hits, misses",
             format("%llu, %llu", static_cast<ull>(stat.hits), static_cast<ull>(stat.misses))});
  table.add({"read, written", bytes_text(stat.read_bytes) + ", " + bytes_text(stat.written_bytes)});
  table.add({"errors, downs",
             format("%llu, %llu", static_cast<ull>(stat.errors), static_cast<ull>(stat.downs))});
  std::cout << table.str() << std::flush;
}

nlohmann::json remote_json(const blendpp::RemoteStat& s, const std::string& error) {
  return {{"answers", error.empty()},
          {"error", error},
          {"hits", s.hits},
          {"misses", s.misses},
          {"late", s.late},
          {"read_bytes", s.read_bytes},
          {"written_bytes", s.written_bytes},
          {"errors", s.errors},
          {"downs", s.downs},
          {"look_up_p50_us", s.look_up_p50_us},
          {"look_up_p99_us", s.look_up_p99_us}};
}

void watch(const blendpp::Store& store, const StoreStatOptions& options) {
  blendpp::StoreReport before = store.report();
  for (;;) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.watch_s));
    if (interrupted()) return;
    const blendpp::StoreReport now = store.report();
    const Passed passed = between(before, now);
    if (options.common.json) {
      std::cout << json_of(now, codecs_of(store)).dump() << std::endl;
    } else {
      std::cout << format("%llu chunks, %s of %s; look-ups %s; %llu evicted",
                          static_cast<ull>(now.n_chunks), bytes_text(now.stored_bytes).c_str(),
                          bytes_text(now.quota_bytes).c_str(), rates_text(passed).c_str(),
                          static_cast<ull>(passed.evicted))
                << std::endl;
    }
    before = now;
  }
}

void run(const StoreStatOptions& options) {
  const blendpp::Context ctx = make_context(options.common);
  const blendpp::Store store =
      open_existing_store(ctx, options.store.path, true, options.store.remote);
  std::string remote_error;
  if (!options.store.remote.url.empty()) remote_error = ask_remote(store);
  if (options.metrics) {
    std::cout << store.metrics(options.store.path) << fidelity_metrics(fidelity_rows(store));
    return;
  }
  const std::vector<blendpp::CodecStat> codecs = codecs_of(store);
  if (options.common.json) {
    nlohmann::json out = json_of(store.report(), codecs);
    out["fidelity"] = fidelity_json(fidelity_rows(store));
    if (!options.store.remote.url.empty())
      out["remote"] = remote_json(store.remote_stat(), remote_error);
    std::cout << (options.watch_s > 0 ? out.dump() : out.dump(2)) << std::endl;
  } else {
    std::cout << text_of(store.report(), codecs) << fidelity_text(fidelity_rows(store))
              << std::flush;
    if (!options.store.remote.url.empty()) print_remote(store, remote_error);
  }
  if (options.watch_s > 0) watch(store, options);
}

}  // namespace

void register_store_stat(CLI::App& store) {
  auto options = std::make_shared<StoreStatOptions>();
  CLI::App* command =
      store.add_subcommand("stat", "Totals: chunks, bytes, codecs, hit rates, evictions");
  add_store_path(*command, options->store);
  add_remote(*command, options->store.remote);
  command
      ->add_option("--watch", options->watch_s,
                   "Look again at this interval in seconds and print the changes, until Ctrl-C")
      ->check(CLI::Range(0.05, 86400.0))
      ->expected(0, 1)
      ->default_str("2")
      ->type_name("SECONDS");
  command->add_flag("--metrics", options->metrics, "In the text format that Prometheus scrapes");
  add_common_options(*command, options->common);
  command->footer(
      "Look-ups and evictions are of all processes since the store was made. Look-ups are written\n"
      "in batches, so their numbers lag a little. With --json and --watch: one object a line.\n\n"
      "Example:\n  blend store stat --store ./store");
  command->callback([options] { run(*options); });
}

}  // namespace blend_cli
