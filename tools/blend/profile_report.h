// What calibrate and verify print: tables of measurements, and a profile, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

// Copy of a line that a callback was shown.
struct MeasuredLine {
  explicit MeasuredLine(const blend_measurement& m)
      : line(m), chunk_prefix(m.chunk_prefix, m.chunk_prefix + m.n_chunk_prefix) {}
  blend_measurement line;
  blendpp::Tokens chunk_prefix;
};

// "none", or the text of the tokens in quotes.
std::string prefix_text(const blendpp::Model& model, const blendpp::Tokens& prefix);

// A row for each ratio; plain and corrected side by side, a block for each chunk prefix and metric.
// A line that keeps the limits is marked.
std::string measurements_table(const blendpp::Model& model, const std::vector<MeasuredLine>& lines,
                               double max_kl, double min_top1);
nlohmann::json measurements_json(const blendpp::Model& model,
                                 const std::vector<MeasuredLine>& lines);

// One sentence where storing chunks with `codec` costs more than the profile's fuse; nothing where
// it does not, or was not measured.
std::optional<std::string> costly_codec(const blendpp::Profile& profile, uint32_t codec);
// A line for each such codec.
std::string costly_codecs_text(const blendpp::Profile& profile);

// The choice made, what codecs cost, how much of the drift each layer's map takes away, and the
// layers' scales.
std::string profile_text(const blendpp::Model& model, const blendpp::Profile& profile);
nlohmann::json profile_json(const blendpp::Model& model, const blendpp::Profile& profile);

}  // namespace blend_cli
