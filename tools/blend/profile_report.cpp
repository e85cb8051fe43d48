#include "profile_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "choices.h"
#include "costly_codec.h"
#include "table.h"

namespace blend_cli {
namespace {

bool same_kind(const MeasuredLine& a, const MeasuredLine& b) {
  return a.line.policy == b.line.policy && a.line.check_layer == b.line.check_layer &&
         a.line.metric == b.line.metric && a.chunk_prefix == b.chunk_prefix;
}

const MeasuredLine* find(const std::vector<MeasuredLine>& lines, const MeasuredLine& like,
                         bool corrected) {
  for (const MeasuredLine& line : lines) {
    if (same_kind(line, like) && line.line.ratio == like.line.ratio &&
        (line.line.corrected != 0) == corrected) {
      return &line;
    }
  }
  return nullptr;
}

std::string percent(double share) { return format("%.1f", 100 * share); }

std::string inputs_text(uint32_t inputs) {
  std::string text = "deviation";
  if ((inputs & BLEND_DRIFT_FRESH) != 0) text += ", fresh K and V";
  if ((inputs & BLEND_DRIFT_CONSTANT) != 0) text += ", constant";
  return text;
}

std::string layer_steps_text(const blendpp::Profile& profile) {
  const blendpp::ProfileInfo info = profile.info();
  if (info.n_layer_steps == 0) return "all alike";
  std::string text;
  for (const float step : profile.layer_steps()) {
    text += format(text.empty() ? "%.2g" : " %.2g", static_cast<double>(step));
  }
  return text + format("; KL of rounding %s at %.2f bits an element, all alike %s at %.2f",
                       kl_text(info.steps_kl_split).c_str(), info.steps_bits_split,
                       kl_text(info.steps_kl_alike).c_str(), info.steps_bits_alike);
}

nlohmann::json layer_steps_json(const blendpp::Profile& profile) {
  const blendpp::ProfileInfo info = profile.info();
  return {{"factors", profile.layer_steps()},    {"kl_alike", info.steps_kl_alike},
          {"kl_split", info.steps_kl_split},     {"gain_margin", info.steps_gain_margin},
          {"bits_alike", info.steps_bits_alike}, {"bits_split", info.steps_bits_split},
          {"n_prompts", info.n_steps_measured}};
}

// Those that were measured, in the order of their numbers.
std::vector<blendpp::CodecCost> codec_costs(const blendpp::Profile& profile) {
  std::vector<blendpp::CodecCost> out;
  for (const auto& [name, codec] : codec_choices()) {
    if (const auto cost = profile.codec_cost(codec)) out.push_back(*cost);
  }
  return out;
}

void add_codecs(const blendpp::Profile& profile, Table& table) {
  for (const blendpp::CodecCost& cost : codec_costs(profile)) {
    table.add({"  codec " + name_of(codec_choices(), cost.codec),
               format("KL of rounding %s +- %s at %.2f bits an element; the fuse leaves %s",
                      kl_text(cost.kl).c_str(), kl_text(cost.kl_margin).c_str(), cost.bits,
                      kl_text(cost.kl_fuse).c_str())});
  }
}

nlohmann::json codecs_json(const blendpp::Profile& profile) {
  nlohmann::json out = nlohmann::json::array();
  for (const blendpp::CodecCost& cost : codec_costs(profile)) {
    out.push_back({{"codec", name_of(codec_choices(), cost.codec)},
                   {"kl", cost.kl},
                   {"kl_margin", cost.kl_margin},
                   {"kl_fuse", cost.kl_fuse},
                   {"bits", cost.bits},
                   {"n_measured", cost.n_measured},
                   {"costly", costly_codec(profile, cost.codec).has_value()}});
  }
  return out;
}

}  // namespace

std::optional<std::string> costly_codec(const blendpp::Profile& profile, uint32_t codec) {
  const auto cost = profile.codec_cost(codec);
  if (!cost) return std::nullopt;
  const blendpp::CodecCost* best = nullptr;
  const std::vector<blendpp::CodecCost> all = codec_costs(profile);
  for (const blendpp::CodecCost& other : all) {
    if (other.kl > other.kl_fuse) continue;
    if (best == nullptr || other.bits < best->bits) best = &other;
  }
  const blendpp::ProfileInfo info = profile.info();
  return costly_codec_text(
      {name_of(codec_choices(), codec),
       name_of(policy_choices(), info.policy) + format(" at ratio %g", info.ratio), cost->kl,
       cost->kl_fuse, best == nullptr ? "" : name_of(codec_choices(), best->codec)});
}

std::string costly_codecs_text(const blendpp::Profile& profile) {
  std::string text;
  for (const blendpp::CodecCost& cost : codec_costs(profile)) {
    if (const auto said = costly_codec(profile, cost.codec)) text += "! " + *said + '\n';
  }
  return text;
}

std::string prefix_text(const blendpp::Model& model, const blendpp::Tokens& prefix) {
  if (prefix.empty()) return "none";
  if (prefix.size() == 1 && prefix[0] == model.info().bos_token) return "bos";
  std::string text = model.detokenize(prefix, BLEND_TOKENIZE_SPECIAL);
  for (char& c : text) c = c == '\n' ? ' ' : c;
  constexpr size_t kMost = 24;
  return "\"" + (text.size() > kMost ? text.substr(0, kMost) + "..." : text) + "\"";
}

std::string measurements_table(const blendpp::Model& model, const std::vector<MeasuredLine>& lines,
                               double max_kl, double min_top1) {
  Table table({"chunk prefix", "policy", "check layer", "metric", "ratio", "FLOPs %", "KL +-",
               "KL p95", "top-1 %", "FLOPs % corr.", "KL corr. +-", "p95 corr.", "top-1 % corr."});
  const auto cells = [&](const MeasuredLine* line, std::vector<std::string>& row) {
    if (line == nullptr) {
      row.insert(row.end(), {"-", "-", "-", "-"});
      return;
    }
    const blend_measurement& m = line->line;
    const bool kept =
        m.kl_mean + m.kl_margin <= max_kl && std::max(m.top1 - m.top1_margin, 0.0) >= min_top1;
    row.insert(row.end(), {percent(m.flops),
                           kl_text(m.kl_mean) + " " + kl_text(m.kl_margin) + (kept ? " *" : "  "),
                           kl_text(m.kl_p95), percent(m.top1)});
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    const MeasuredLine& line = lines[i];
    const MeasuredLine* const plain = find(lines, line, false);
    const MeasuredLine* const corrected = find(lines, line, true);
    // One row for the two of them, at the place of the first.
    if (&line != (plain != nullptr ? plain : corrected)) continue;
    std::vector<std::string> row = {
        prefix_text(model, line.chunk_prefix), name_of(policy_choices(), line.line.policy),
        std::to_string(line.line.check_layer), name_of(metric_choices(), line.line.metric),
        format("%g", line.line.ratio)};
    cells(plain, row);
    cells(corrected, row);
    table.add(std::move(row));
  }
  return table.str();
}

nlohmann::json measurements_json(const blendpp::Model& model,
                                 const std::vector<MeasuredLine>& lines) {
  nlohmann::json out = nlohmann::json::array();
  for (const MeasuredLine& line : lines) {
    const blend_measurement& m = line.line;
    out.push_back({{"chunk_prefix", prefix_text(model, line.chunk_prefix)},
                   {"policy", name_of(policy_choices(), m.policy)},
                   {"check_layer", m.check_layer},
                   {"metric", name_of(metric_choices(), m.metric)},
                   {"corrected", m.corrected != 0},
                   {"ratio", m.ratio},
                   {"kl_mean", m.kl_mean},
                   {"kl_p95", m.kl_p95},
                   {"top1", m.top1},
                   {"kl_margin", m.kl_margin},
                   {"top1_margin", m.top1_margin},
                   {"flops_relative", m.flops},
                   {"n_positions", m.n_positions}});
  }
  return out;
}

std::string profile_text(const blendpp::Model& model, const blendpp::Profile& profile) {
  const blendpp::ProfileInfo info = profile.info();
  Table table({"chosen", ""}, Table::Align::all_left);
  table.add({"  chunk prefix", prefix_text(model, profile.chunk_prefix())});
  table.add({"  records", info.n_contexts == 0
                              ? "after the chunk prefix"
                              : format("in the context of %u similar chunks", info.n_contexts)});
  table.add({"  policy", name_of(policy_choices(), info.policy)});
  table.add({"  metric", name_of(metric_choices(), info.metric)});
  table.add({"  check layer", std::to_string(info.check_layer)});
  table.add({"  drift correction", info.corrected != 0 ? "yes" : "no"});
  table.add({"  ratio", format("%g", info.ratio) +
                            (info.trusted != 0 ? ", the least that is trusted"
                                               : ": none was trusted, recompute everything")});
  table.add(
      {"  limits", format("mean KL <= %g, top-1 >= %g %%", info.max_kl, 100 * info.min_top1)});
  table.add({"  prompts",
             format("%llu fitted, %llu measured", static_cast<unsigned long long>(info.n_fitted),
                    static_cast<unsigned long long>(info.n_measured))});
  table.add({"  layers' steps (rans)", layer_steps_text(profile)});
  add_codecs(profile, table);
  if (info.drift_inputs == 0) return table.str();
  table.add({"  drift maps",
             inputs_text(info.drift_inputs) + "; " +
                 (info.drift_rank == 0 ? "whole" : format("rank %u", info.drift_rank)) +
                 "; ridge " + format("%g", info.ridge) + "; " + bytes_text(info.drift_bytes)});
  if (info.stored_rank > 0) {
    table.add({"  maps of rows left out before layer 0", format("rank %u", info.stored_rank)});
  }
  const uint32_t n_layers = model.info().n_layers;
  for (uint32_t layer = info.check_layer + 1; layer < n_layers; ++layer) {
    const auto [k, v] = profile.drift(layer);
    table.add(
        {format("  layer %u", layer),
         format("takes away %.0f %% of K's squared drift, %.0f %% of V's", 100 * k, 100 * v)});
  }
  return table.str();
}

nlohmann::json profile_json(const blendpp::Model& model, const blendpp::Profile& profile) {
  const blendpp::ProfileInfo info = profile.info();
  nlohmann::json drift = nlohmann::json::array();
  const uint32_t n_layers = model.info().n_layers;
  if (info.drift_inputs != 0) {
    for (uint32_t layer = info.check_layer + 1; layer < n_layers; ++layer) {
      const auto [k, v] = profile.drift(layer);
      drift.push_back({{"layer", layer}, {"explained_k", k}, {"explained_v", v}});
    }
  }
  return {{"trusted", info.trusted != 0},
          {"chunk_prefix", prefix_text(model, profile.chunk_prefix())},
          {"n_contexts", info.n_contexts},
          {"policy", name_of(policy_choices(), info.policy)},
          {"metric", name_of(metric_choices(), info.metric)},
          {"check_layer", info.check_layer},
          {"ratio", info.ratio},
          {"corrected", info.corrected != 0},
          {"max_kl", info.max_kl},
          {"min_top1", info.min_top1},
          {"n_fitted", info.n_fitted},
          {"n_measured", info.n_measured},
          {"layer_steps", layer_steps_json(profile)},
          {"codecs", codecs_json(profile)},
          {"drift_inputs", inputs_text(info.drift_inputs)},
          {"drift_rank", info.drift_rank},
          {"stored_rank", info.stored_rank},
          {"ridge", info.ridge},
          {"drift_bytes", info.drift_bytes},
          {"drift", std::move(drift)}};
}

}  // namespace blend_cli
