#include "report.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "table.h"

namespace blend_cli {
namespace {

constexpr size_t kTimelineWidth = 56;

// "1 exact, 4 contextual": how the chunks that were reused had been stored.
std::string records_text(const std::vector<blendpp::SegmentInfo>& segments) {
  std::array<size_t, BLEND_RECORD_ALONE + 1> counts{};
  for (const blendpp::SegmentInfo& s : segments) {
    if (s.kind == BLEND_SEGMENT_CHUNK && s.record < counts.size()) ++counts[s.record];
  }
  std::string out;
  for (uint32_t record = BLEND_RECORD_EXACT; record < counts.size(); ++record) {
    if (counts[record] == 0) continue;
    out += (out.empty() ? "" : ", ") + std::to_string(counts[record]) + " " + record_text(record);
  }
  return out;
}

std::string kind_text(uint32_t kind) {
  switch (kind) {
    case BLEND_SEGMENT_PREFIX:
      return "prefix";
    case BLEND_SEGMENT_CHUNK:
      return "chunk";
    case BLEND_SEGMENT_TEXT:
      return "text";
    default:
      return "question";
  }
}

std::string source_text(uint32_t source) {
  switch (source) {
    case BLEND_SOURCE_STORE:
      return "store";
    case BLEND_SOURCE_PRECOMPUTED:
      return "precomputed";
    case BLEND_SOURCE_COMPUTED:
      return "computed";
    default:
      return "none";
  }
}

// Loading and computing of one layer on a line as wide as the whole fuse.
std::string timeline(const blendpp::LayerInfo& layer, uint64_t total_ns) {
  std::string line(kTimelineWidth, ' ');
  const auto mark = [&](uint64_t begin, uint64_t end, char c) {
    if (end <= begin || total_ns == 0) return;
    const auto column = [&](uint64_t ns) {
      return static_cast<size_t>(static_cast<double>(ns) / static_cast<double>(total_ns) *
                                 kTimelineWidth);
    };
    const size_t first = std::min(column(begin), kTimelineWidth - 1);
    const size_t last = std::clamp(column(end), first + 1, kTimelineWidth);
    for (size_t i = first; i < last; ++i) line[i] = line[i] == ' ' ? c : '*';
  };
  mark(layer.load_begin_ns, layer.load_end_ns, '=');
  mark(layer.compute_begin_ns, layer.compute_end_ns, '#');
  return "|" + line + "|";
}

std::string interval_text(uint64_t begin, uint64_t end) {
  if (begin == 0 && end == 0) return "-";
  return format("%.2f-%.2f", static_cast<double>(begin) / 1e6, static_cast<double>(end) / 1e6);
}

// The policy and what it went by.
std::string policy_facts(const blendpp::FusionReport& info) {
  std::string text = policy_name(info.policy);
  if (info.n_check_layers == 0) return text;
  text += format(", ratio %.3g", info.ratio);
  // Layer 0: chosen before it, without a measurement.
  if (info.check_layer == 0) return text;
  text += format(", metric %s%s%s", name_of(metric_choices(), info.metric).c_str(),
                 info.norm == BLEND_NORM_L1 ? " l1" : "", info.relative != 0 ? " relative" : "");
  text += info.n_check_layers > 1
              ? format(", %u check layers from %u", info.n_check_layers, info.check_layer)
              : format(", check layer %u", info.check_layer);
  return text;
}

}  // namespace

std::string record_text(uint32_t record) {
  constexpr std::array<const char*, 6> kNames = {"none",       "exact", "predecessor",
                                                 "contextual", "head",  "alone"};
  return record < kNames.size() ? kNames[record] : "other";
}

FusionReport report_of(const blendpp::Fusion& fusion) {
  FusionReport report;
  report.info = fusion.report();
  for (uint32_t i = 0; i < report.info.n_layers; ++i) report.layers.push_back(fusion.layer(i));
  for (size_t i = 0; i < report.info.n_segments; ++i) {
    report.segments.push_back(fusion.segment(i));
  }
  return report;
}

std::string summary_text(const FusionReport& report) {
  const blendpp::FusionReport& info = report.info;
  const auto share = [&](uint64_t ns) {
    return share_text(static_cast<double>(ns), static_cast<double>(info.ttft_ns));
  };
  Table times({"time to first token", ms_text(info.ttft_ns), "", ""});
  times.add(
      {"  plan", ms_text(info.plan_ns), share(info.plan_ns), "ids, look-up, token comparison"});
  times.add({"  miss", ms_text(info.miss_ns), share(info.miss_ns), "prefill of missing chunks"});
  times.add({"  wait", ms_text(info.wait_ns), share(info.wait_ns), "for the reader thread"});
  times.add(
      {"  place", ms_text(info.place_ns), share(info.place_ns), "stored rows into the cache"});
  times.add({"  select", ms_text(info.select_ns), share(info.select_ns), "deviation and top-k"});
  times.add({"  compute", ms_text(info.compute_ns), share(info.compute_ns), "layers and logits"});
  times.add({"  load", ms_text(info.load_ns), share(info.load_ns),
             "reader thread, beside all of the above"});

  const uint64_t recomputed = info.n_rows_selected + info.n_rows_always;
  Table facts({"policy", policy_facts(info)}, Table::Align::all_left);
  const auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::string segments =
      format("%llu: %llu hits, %llu misses", n(info.n_segments), n(info.n_hits), n(info.n_misses));
  if (info.n_misses_late > 0) {
    segments += format(" (of %llu the remote tier did not answer in time)", n(info.n_misses_late));
  }
  facts.add({"segments", segments});
  if (const std::string records = records_text(report.segments); !records.empty()) {
    facts.add({"chunks stored", records});
  }
  facts.add({"rows", format("%llu: %llu exact, %llu reused, %llu always computed", n(info.n_rows),
                            n(info.n_rows_exact), n(info.n_rows_reused), n(info.n_rows_always))});
  facts.add(
      {"rows recomputed",
       format(
           "%llu selected, %llu in all (%s of the prompt)", n(info.n_rows_selected), n(recomputed),
           share_text(static_cast<double>(recomputed), static_cast<double>(info.n_rows)).c_str())});
  if (info.n_rows_corrected > 0) {
    facts.add(
        {"rows corrected", format("%llu not recomputed, their drift added; %s of the placing",
                                  n(info.n_rows_corrected), ms_text(info.correct_ns).c_str())});
  }
  if (info.n_rows_shifted > 0) {
    facts.add({"rows shifted",
               format("%llu not recomputed, moved as the recomputed rows of their chunk moved",
                      n(info.n_rows_shifted))});
  }
  facts.add({"loaded",
             format("%s: %s from memory, with all of %llu rows; %s from disk",
                    bytes_text(info.bytes_loaded).c_str(),
                    bytes_text(info.bytes_from_memory).c_str(), n(info.n_rows_from_memory),
                    bytes_text(info.bytes_loaded - info.bytes_from_memory - info.bytes_from_remote)
                        .c_str()) +
                 (info.bytes_from_remote == 0
                      ? ""
                      : format("; %s from remote", bytes_text(info.bytes_from_remote).c_str()))});
  if ((info.flags & BLEND_FUSION_RATIO_CHOSEN) != 0) {
    facts.add(
        {"chosen",
         format(
             "%s expected: loading %s beside computing %s; %llu stored rows sooner "
             "computed, all of them in %s%s",
             ms_text(info.ttft_expected_ns).c_str(), ms_text(info.load_expected_ns).c_str(),
             ms_text(info.compute_expected_ns).c_str(), n(info.n_rows_sooner_computed),
             ms_text(info.computing_expected_ns).c_str(),
             (info.flags & BLEND_FUSION_TARGET_MISSED) != 0 ? "; later than was asked for" : "")});
  }
  if (info.bytes_from_device > 0) {
    facts.add({"on the device",
               format("%s, not loaded at all; all of %llu rows",
                      bytes_text(info.bytes_from_device).c_str(), n(info.n_rows_from_device))});
  }
  std::string text = times.str() + '\n' + facts.str();
  if ((info.flags & BLEND_FUSION_UNCALIBRATED) != 0) {
    text += "The ratio is not calibrated for this model; --compare shows what it costs.\n";
  }
  if ((info.flags & BLEND_FUSION_UNTRUSTED) != 0) {
    text += "The profile does not trust this way of fusing; --compare shows what it costs.\n";
  }
  return text;
}

std::string layers_text(const FusionReport& report) {
  uint64_t end = 1;
  for (const blendpp::LayerInfo& layer : report.layers) {
    end = std::max({end, layer.load_end_ns, layer.compute_end_ns});
  }
  Table table({"layer", "K,V rows", "full rows", "placed", "loaded", "load ms", "compute ms",
               "wait ms", "place ms", format("0 .. %s", ms_text(end).c_str())});
  for (const blendpp::LayerInfo& layer : report.layers) {
    table.add({std::to_string(layer.layer), std::to_string(layer.rows_kv),
               std::to_string(layer.rows_full), std::to_string(layer.rows_placed),
               bytes_text(layer.bytes_loaded),
               interval_text(layer.load_begin_ns, layer.load_end_ns),
               interval_text(layer.compute_begin_ns, layer.compute_end_ns),
               format("%.2f", static_cast<double>(layer.wait_ns) / 1e6),
               format("%.2f", static_cast<double>(layer.place_ns) / 1e6), timeline(layer, end)});
  }
  return table.str() + "= loading   # computing (wait and place included)   * both\n";
}

nlohmann::json report_json(const FusionReport& report) {
  const blendpp::FusionReport& info = report.info;
  nlohmann::json out = {
      {"policy", policy_name(info.policy)},
      {"metric", name_of(metric_choices(), info.metric)},
      {"norm", info.norm == BLEND_NORM_L1 ? "l1" : "l2"},
      {"relative", info.relative != 0},
      {"check_layer", info.check_layer},
      {"n_check_layers", info.n_check_layers},
      {"ratio", info.ratio},
      {"calibrated", (info.flags & BLEND_FUSION_UNCALIBRATED) == 0},
      {"trusted", (info.flags & (BLEND_FUSION_UNCALIBRATED | BLEND_FUSION_UNTRUSTED)) == 0},
      {"n_rows_corrected", info.n_rows_corrected},
      {"correct_ns", info.correct_ns},
      {"n_rows_shifted", info.n_rows_shifted},
      {"n_layers", info.n_layers},
      {"n_rows", info.n_rows},
      {"n_rows_exact", info.n_rows_exact},
      {"n_rows_reused", info.n_rows_reused},
      {"n_rows_selected", info.n_rows_selected},
      {"n_rows_always", info.n_rows_always},
      {"n_segments", info.n_segments},
      {"n_hits", info.n_hits},
      {"n_misses", info.n_misses},
      {"n_misses_late", info.n_misses_late},
      {"bytes_loaded", info.bytes_loaded},
      {"bytes_shared", info.bytes_shared},
      {"bytes_from_memory", info.bytes_from_memory},
      {"bytes_from_remote", info.bytes_from_remote},
      {"n_rows_from_memory", info.n_rows_from_memory},
      {"bytes_from_device", info.bytes_from_device},
      {"n_rows_from_device", info.n_rows_from_device},
      {"ring_depth", info.ring_depth},
      {"prepare_ns", info.prepare_ns},
      {"stall_ns", info.stall_ns},
      {"other_ns", info.other_ns},
      {"ttft_ns", info.ttft_ns},
      {"ttft_expected_ns", info.ttft_expected_ns},
      {"load_expected_ns", info.load_expected_ns},
      {"compute_expected_ns", info.compute_expected_ns},
      {"computing_expected_ns", info.computing_expected_ns},
      {"n_rows_sooner_computed", info.n_rows_sooner_computed},
      {"plan_ns", info.plan_ns},
      {"miss_ns", info.miss_ns},
      {"load_ns", info.load_ns},
      {"wait_ns", info.wait_ns},
      {"place_ns", info.place_ns},
      {"select_ns", info.select_ns},
      {"compute_ns", info.compute_ns}};
  out["layers"] = nlohmann::json::array();
  for (const blendpp::LayerInfo& layer : report.layers) {
    out["layers"].push_back({{"layer", layer.layer},
                             {"rows_kv", layer.rows_kv},
                             {"rows_full", layer.rows_full},
                             {"rows_placed", layer.rows_placed},
                             {"bytes_loaded", layer.bytes_loaded},
                             {"bytes_from_memory", layer.bytes_from_memory},
                             {"bytes_from_remote", layer.bytes_from_remote},
                             {"load_begin_ns", layer.load_begin_ns},
                             {"load_end_ns", layer.load_end_ns},
                             {"compute_begin_ns", layer.compute_begin_ns},
                             {"compute_end_ns", layer.compute_end_ns},
                             {"wait_ns", layer.wait_ns},
                             {"stall_ns", layer.stall_ns},
                             {"select_ns", layer.select_ns},
                             {"place_ns", layer.place_ns}});
  }
  out["segments"] = nlohmann::json::array();
  for (const blendpp::SegmentInfo& segment : report.segments) {
    out["segments"].push_back({{"kind", kind_text(segment.kind)},
                               {"source", source_text(segment.source)},
                               {"exact", segment.exact != 0},
                               {"record", record_text(segment.record)},
                               {"first_row", segment.first_row},
                               {"n_rows", segment.n_rows},
                               {"n_rows_selected", segment.n_rows_selected},
                               {"id", blendpp::ChunkId(segment.id).hex()}});
  }
  return out;
}

}  // namespace blend_cli
