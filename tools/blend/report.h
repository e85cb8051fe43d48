// Report: what a fuse did, as tables and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

// Copy of a fusion's facts, kept after it is closed.
struct FusionReport {
  blendpp::FusionReport info;
  std::vector<blendpp::LayerInfo> layers;
  std::vector<blendpp::SegmentInfo> segments;
};
FusionReport report_of(const blendpp::Fusion& fusion);

// A name for the kind of a chunk's record, BLEND_RECORD_*.
std::string record_text(uint32_t record);

// TTFT and its parts, hits and misses, rows.
std::string summary_text(const FusionReport& report);
// A row for each layer, and a timeline that shows loading ahead of computing.
std::string layers_text(const FusionReport& report);
nlohmann::json report_json(const FusionReport& report);

}  // namespace blend_cli
