#include "eval_html_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "blend/blend.h"
#include "eval_html_text.h"
#include "eval_metrics.h"
#include "table.h"

namespace blend_cli {
namespace {

constexpr double kWidth = 1120;
constexpr double kLeft = 84;
constexpr double kRight = 10;
constexpr double kTop = 8;
constexpr double kStrip = 22;  // height of the deviation strip
constexpr double kMark = 8;    // of the ticks that mark selected rows
constexpr double kGap = 6;

std::string n(double value) { return svg_number(value); }

std::string text_at(double x, double y, const char* classes, const std::string& text) {
  return "<text x=\"" + n(x) + "\" y=\"" + n(y) + "\" class=\"" + classes + "\">" +
         html_text(text) + "</text>";
}

std::string rect(double x, double y, double width, double height, const std::string& attributes) {
  return "<rect x=\"" + n(x) + "\" y=\"" + n(y) + "\" width=\"" + n(width) + "\" height=\"" +
         n(height) + "\" " + attributes + "/>";
}

// Runs of equal neighbours: [first, last) and their value.
struct Run {
  uint32_t first;
  uint32_t last;
  uint8_t value;
};
std::vector<Run> runs_of(const std::vector<uint8_t>& values) {
  std::vector<Run> runs;
  for (uint32_t i = 0; i < values.size(); ++i) {
    if (!runs.empty() && runs.back().value == values[i]) {
      ++runs.back().last;
    } else {
      runs.push_back({i, i + 1, values[i]});
    }
  }
  return runs;
}

// "chunk 3", "prefix", "question"; a chunk's number counts chunks alone.
std::vector<std::string> segment_names(const RowTrace& trace) {
  std::vector<std::string> names;
  size_t chunk = 0;
  for (const RowTrace::Segment& segment : trace.segments) {
    names.push_back(segment.kind == BLEND_SEGMENT_CHUNK      ? "chunk " + std::to_string(++chunk)
                    : segment.kind == BLEND_SEGMENT_PREFIX   ? "prefix"
                    : segment.kind == BLEND_SEGMENT_QUESTION ? "question"
                                                             : "text");
  }
  return names;
}

std::vector<uint8_t> mask_of(const RowTrace& trace, const std::vector<uint32_t>& rows) {
  std::vector<uint8_t> mask(trace.n_rows, 0);
  for (const uint32_t row : rows) mask[row] = 1;
  return mask;
}

// Rows between two numbers of the axis, so that about ten are shown.
uint32_t tick_step(uint32_t n_rows) {
  uint32_t step = 1;
  for (uint32_t power = 1; n_rows / step > 12; power *= 10) {
    for (const uint32_t factor : {1u, 2u, 5u}) {
      step = factor * power;
      if (n_rows / step <= 12) break;
    }
  }
  return step;
}

}  // namespace

std::vector<double> heat_of(const RowTrace& trace) {
  std::vector<double> measured;
  for (const float deviation : trace.deviation) {
    if (deviation > 0) measured.push_back(deviation);
  }
  const double top = quantile(measured, 0.99);
  std::vector<double> heat;
  for (const float deviation : trace.deviation) {
    const double share = top > 0 ? static_cast<double>(deviation) / top : 0;
    heat.push_back(std::sqrt(std::clamp(share, 0.0, 1.0)));
  }
  return heat;
}

std::string rows_svg(const RowTrace& trace) {
  const auto n_layers = trace.layers.size();
  const double row_width = (kWidth - kLeft - kRight) / std::max(1u, trace.n_rows);
  const double layer_height = n_layers <= 12 ? 18 : n_layers <= 24 ? 12 : 8;
  const double layers_top = kTop + kStrip + kMark + kGap;
  const double layers_end = layers_top + layer_height * static_cast<double>(n_layers);
  const double height = layers_end + 44;
  const auto x = [&](uint32_t row) { return kLeft + row_width * row; };

  std::string out = "<svg viewBox=\"0 0 " + n(kWidth) + " " + n(height) +
                    "\" class=\"rows\" role=\"img\" aria-label=\"layers by rows\">";
  // The strip in 20 steps of heat: equal neighbours become one rectangle.
  out += text_at(kLeft - 8, kTop + 12, "t e", "deviation");
  out += rect(kLeft, kTop, kWidth - kLeft - kRight, kStrip, "class=\"cold\"");
  std::vector<uint8_t> steps;
  for (const double heat : heat_of(trace))
    steps.push_back(static_cast<uint8_t>(std::lround(heat * 20)));
  for (const Run& run : runs_of(steps)) {
    if (run.value == 0) continue;
    out += rect(x(run.first), kTop, row_width * (run.last - run.first), kStrip,
                "class=\"hot\" fill-opacity=\"" + n(run.value / 20.0) + "\"");
  }
  out += text_at(kLeft - 8, kTop + kStrip + kMark + 1, "t e", "selected");
  for (const Run& run : runs_of(mask_of(trace, trace.selected))) {
    if (run.value == 0) continue;
    out += rect(x(run.first), kTop + kStrip + 2, std::max(1.0, row_width * (run.last - run.first)),
                kMark - 2, "class=\"pick\"");
  }
  for (size_t layer = 0; layer < n_layers; ++layer) {
    const double y = layers_top + layer_height * static_cast<double>(layer);
    const size_t label_every = n_layers <= 24 ? 1 : 4;
    if (layer % label_every == 0) {
      out += text_at(kLeft - 8, y + layer_height / 2 + 4, "t e", "layer " + std::to_string(layer));
    }
    const std::vector<uint8_t> full = mask_of(trace, trace.layers[layer].full);
    std::vector<uint8_t> state = mask_of(trace, trace.layers[layer].kv);
    for (size_t row = 0; row < state.size(); ++row) state[row] = full[row] != 0 ? 2 : state[row];
    static const char* const kStates[] = {"class=\"stored\"", "class=\"kv\"", "class=\"full\""};
    for (const Run& run : runs_of(state)) {
      out += rect(x(run.first), y, row_width * (run.last - run.first), layer_height - 1,
                  kStates[run.value]);
    }
  }
  // Segments: a line at each border, a name where there is room for it.
  const std::vector<std::string> names = segment_names(trace);
  for (size_t i = 0; i < trace.segments.size(); ++i) {
    const RowTrace::Segment& segment = trace.segments[i];
    const double begin = x(segment.first_row);
    const double width = row_width * segment.n_rows;
    if (segment.first_row > 0) {
      out += "<line x1=\"" + n(begin) + "\" y1=\"" + n(kTop - 4) + "\" x2=\"" + n(begin) +
             "\" y2=\"" + n(layers_end + 18) + "\" class=\"edge\"/>";
    }
    const double needed = 6.5 * static_cast<double>(names[i].size()) + 4;
    if (width >= needed) out += text_at(begin + width / 2, layers_end + 15, "t m", names[i]);
  }
  for (uint32_t row = 0; row < trace.n_rows; row += tick_step(trace.n_rows)) {
    out += text_at(x(row) + row_width / 2, layers_end + 34, "t m q", std::to_string(row));
  }
  out += text_at(kLeft - 8, layers_end + 34, "t e q", "row");
  return out + "</svg>";
}

std::string token_strip_html(const RowTrace& trace, const std::vector<std::string>& pieces) {
  const std::vector<double> heat = heat_of(trace);
  const std::vector<uint8_t> selected = mask_of(trace, trace.selected);
  const std::vector<std::string> names = segment_names(trace);
  std::string out = "<div class=\"strip\">";
  for (size_t i = 0; i < trace.segments.size(); ++i) {
    const RowTrace::Segment& segment = trace.segments[i];
    const uint32_t last = segment.first_row + segment.n_rows;
    const auto n_selected =
        std::count(selected.begin() + segment.first_row, selected.begin() + last, 1);
    // A chunk whose rows were all reused without loss, or that was computed: nothing to select.
    const bool measured =
        std::any_of(trace.deviation.begin() + segment.first_row, trace.deviation.begin() + last,
                    [](float deviation) { return deviation > 0; });
    const std::string note =
        measured ? format("%d of %u recomputed", static_cast<int>(n_selected), segment.n_rows)
        : segment.exact ? "reused exactly"
                        : "always computed";
    out += "<div class=\"seg\"><div class=\"name\"><b>" + names[i] + "</b><span>" + note +
           "</span></div><div class=\"tokens\">";
    for (uint32_t row = segment.first_row; row < last; ++row) {
      const char* kind = selected[row] != 0 ? " pick" : measured ? "" : " plain";
      const std::string& piece = pieces[row];
      const bool joins = row > segment.first_row && !piece.empty() && piece[0] != ' ';
      // A word's tokens stay on one line.
      if (!joins)
        out += row > segment.first_row ? "</span><span class=\"word\">" : "<span class=\"word\">";
      out += format("<span class=\"tok%s%s\" title=\"row %u", kind, joins ? " j" : "", row);
      if (measured) {
        out += format(" | deviation %.3g%s", static_cast<double>(trace.deviation[row]),
                      selected[row] != 0 ? " | recomputed" : "");
      }
      out += "\"><i>";
      if (heat[row] > 0) out += "<i style=\"opacity:" + n(heat[row]) + "\"></i>";
      out += "</i>" + html_text(token_label(piece)) + "</span>";
    }
    out += "</span></div></div>";
  }
  return out + "</div>";
}

}  // namespace blend_cli
