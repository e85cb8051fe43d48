// Charts: lines with confidence bars, as inline SVG. Colours come from the page's style sheet
// (classes c0 .. c7), so that one chart reads in light and in dark.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace blend_cli {

inline constexpr size_t kChartColours = 8;
inline constexpr size_t kChartDashes = 4;

struct ChartPoint {
  double x = 0;
  double y = 0;
  bool has_bar = false;
  double low = 0;  // of the confidence bar
  double high = 0;
  bool hidden = false;  // the line passes, no marker is drawn
};

struct ChartSeries {
  std::string name;
  size_t colour = 0;
  size_t dash = 0;      // 0: solid
  bool square = false;  // the marker; otherwise a disc
  std::vector<ChartPoint> points;
};

// A horizontal line across the chart.
struct ChartReference {
  std::string name;
  double y = 0;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_y = false;  // points at or below 0 stand on the floor
  bool x_from_zero = true;
  bool y_from_zero = false;
  double y_most = 0;  // where the y axis ends at the latest; 0: nowhere
  std::vector<ChartSeries> series;
  std::vector<ChartReference> references;
};

std::string chart_svg(const Chart& chart);
// The short line with a marker that stands before a series' name in a legend.
std::string legend_key_svg(const ChartSeries& series);

// Round steps that cover [low, high] with about `count` ticks: 1, 2 or 5 times a power of ten.
std::vector<double> axis_ticks(double low, double high, size_t count);

}  // namespace blend_cli
