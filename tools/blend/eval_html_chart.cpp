#include "eval_html_chart.h"

#include <algorithm>
#include <cmath>

#include "eval_html_text.h"
#include "table.h"

namespace blend_cli {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 330;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 34;
constexpr double kBottom = 50;
// Series that share an x stand this far apart, so that their bars do not hide each other.
constexpr double kDodge = 4;

std::string n(double value) { return svg_number(value); }

std::string text_at(double x, double y, const char* classes, const std::string& text) {
  return "<text x=\"" + n(x) + "\" y=\"" + n(y) + "\" class=\"" + classes + "\">" +
         html_text(text) + "</text>";
}

std::string line(double x1, double y1, double x2, double y2, const std::string& classes) {
  return "<line x1=\"" + n(x1) + "\" y1=\"" + n(y1) + "\" x2=\"" + n(x2) + "\" y2=\"" + n(y2) +
         "\" class=\"" + classes + "\"/>";
}

std::string marker(double x, double y, const ChartSeries& series, const std::string& title) {
  const std::string classes = "m c" + std::to_string(series.colour % kChartColours);
  const std::string inside = title.empty() ? "" : "<title>" + html_text(title) + "</title>";
  if (series.square) {
    return "<rect x=\"" + n(x - 4.5) + "\" y=\"" + n(y - 4.5) +
           "\" width=\"9\" height=\"9\" class=\"" + classes + "\">" + inside + "</rect>";
  }
  return "<circle cx=\"" + n(x) + "\" cy=\"" + n(y) + "\" r=\"4.5\" class=\"" + classes + "\">" +
         inside + "</circle>";
}

std::string stroke_classes(const ChartSeries& series) {
  return "s c" + std::to_string(series.colour % kChartColours) + " d" +
         std::to_string(series.dash % kChartDashes);
}

// A range of values on a stretch of pixels.
struct Axis {
  double low = 0;
  double high = 1;
  double from = 0;  // pixel of `low`
  double to = 1;
  bool log = false;

  double at(double value) const {
    const double v = log ? std::log10(std::max(value, low)) : value;
    const double a = log ? std::log10(low) : low;
    const double b = log ? std::log10(high) : high;
    return from + (to - from) * std::clamp((v - a) / (b - a), 0.0, 1.0);
  }
};

std::vector<double> all_y(const Chart& chart) {
  std::vector<double> values;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      values.push_back(point.y);
      if (point.has_bar) values.insert(values.end(), {point.low, point.high});
    }
  }
  for (const ChartReference& reference : chart.references) values.push_back(reference.y);
  return values;
}

Axis x_axis(const Chart& chart) {
  double low = chart.x_from_zero ? 0 : INFINITY;
  double high = chart.x_from_zero ? 0 : -INFINITY;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      low = std::min(low, point.x);
      high = std::max(high, point.x);
    }
  }
  if (!(high > low)) high = (std::isfinite(low) ? low : 0) + 1;
  if (!std::isfinite(low)) low = 0;
  const double pad = 0.04 * (high - low);
  return {low - pad, high + pad, kLeft, kWidth - kRight, false};
}

Axis linear_y_axis(const Chart& chart) {
  const std::vector<double> values = all_y(chart);
  double low = values.empty() ? 0 : *std::min_element(values.begin(), values.end());
  double high = values.empty() ? 1 : *std::max_element(values.begin(), values.end());
  const bool negative = low < 0;
  if (chart.y_from_zero) low = 0;
  if (high - low < 1e-9) {
    low -= 1;
    high += 1;
  }
  if (!negative) low = std::max(low, 0.0);  // a count or a share has no other side
  const std::vector<double> ticks = axis_ticks(low, high, 5);
  low = std::min(low, ticks.front());
  high = std::max(high, ticks.back());
  if (chart.y_most > 0) high = std::min(high, chart.y_most);
  return {low, high, kHeight - kBottom, kTop, false};
}

Axis log_y_axis(const Chart& chart) {
  double low = INFINITY;
  double high = 0;
  for (const double value : all_y(chart)) {
    if (value > 0) low = std::min(low, value);
    high = std::max(high, value);
  }
  if (!(high > 0)) return {0.1, 1, kHeight - kBottom, kTop, true};
  // Whole powers of ten, one at least. What rounding alone makes is not worth more than ten.
  high = std::pow(10.0, std::ceil(std::log10(high) - 1e-9));
  low = std::pow(10.0, std::floor(std::log10(low) + 1e-9));
  low = std::clamp(low, high * 1e-10, high / 10);
  return {low, high, kHeight - kBottom, kTop, true};
}

std::string tick_text(double value) {
  return std::abs(value) < 1e-12 ? "0" : format("%g", std::round(value * 1e9) / 1e9);
}

std::string grid(const Chart& chart, const Axis& x, const Axis& y) {
  std::string out;
  const auto y_tick = [&](double value, const std::string& label) {
    out += line(kLeft, y.at(value), kWidth - kRight, y.at(value), "g");
    out += text_at(kLeft - 8, y.at(value) + 4, "t e", label);
  };
  if (y.log) {
    const int first = static_cast<int>(std::lround(std::log10(y.low)));
    const int last = static_cast<int>(std::lround(std::log10(y.high)));
    const int step = 1 + (last - first) / 7;
    for (int power = first; power <= last; power += step) {
      const bool plain = power >= -3 && power <= 3;
      y_tick(std::pow(10.0, power),
             plain ? format("%g", std::pow(10.0, power)) : format("1e%d", power));
    }
  } else {
    for (const double value : axis_ticks(y.low, y.high, 5)) {
      if (value <= y.high * (1 + 1e-9)) y_tick(value, tick_text(value));
    }
  }
  out += line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "a");
  for (const double value : axis_ticks(x.low, x.high, 7)) {
    if (value < x.low || value > x.high) continue;
    out += line(x.at(value), kHeight - kBottom, x.at(value), kHeight - kBottom + 4, "a");
    out += text_at(x.at(value), kHeight - kBottom + 18, "t m", tick_text(value));
  }
  out += text_at(kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 10, "l m", chart.x_label);
  out += "<text transform=\"translate(15 " + n(kTop + (kHeight - kTop - kBottom) / 2) +
         ") rotate(-90)\" class=\"l m\">" + html_text(chart.y_label) + "</text>";
  return out;
}

// The pixel in the middle of the widest gap between points: where a label meets no bar.
double widest_gap(const Chart& chart, const Axis& x) {
  std::vector<double> places = {x.from, x.to};
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) places.push_back(x.at(point.x));
  }
  std::sort(places.begin(), places.end());
  double best = 0;
  double middle = (x.from + x.to) / 2;
  for (size_t i = 1; i < places.size(); ++i) {
    const double gap = places[i] - places[i - 1];
    if (gap <= best) continue;
    best = gap;
    middle = (places[i] + places[i - 1]) / 2;
  }
  return middle;
}

std::string series_svg(const ChartSeries& series, double shift, const Axis& x, const Axis& y) {
  std::string bars;
  std::string markers;
  std::string path;
  for (const ChartPoint& point : series.points) {
    // What has no bar hides none.
    const double px = x.at(point.x) + (point.has_bar ? shift : 0);
    const double py = y.at(point.y);
    if (!path.empty()) path += ' ';
    path += n(px) + "," + n(py);
    std::string title = series.name + ": " + format("%.4g", point.y);
    if (point.has_bar) {
      const double top = y.at(point.high);
      const double bottom = y.at(point.low);
      const std::string classes = "b c" + std::to_string(series.colour % kChartColours);
      bars += line(px, top, px, bottom, classes) + line(px - 4, top, px + 4, top, classes) +
              line(px - 4, bottom, px + 4, bottom, classes);
      title += format(" [%.4g, %.4g]", point.low, point.high);
    }
    if (!point.hidden) markers += marker(px, py, series, title);
  }
  const std::string stroke =
      series.points.size() < 2
          ? ""
          : "<polyline points=\"" + path + "\" class=\"" + stroke_classes(series) + "\"/>";
  return bars + stroke + markers;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, size_t count) {
  const double rough = (high - low) / static_cast<double>(std::max<size_t>(count, 1));
  if (!(rough > 0) || !std::isfinite(rough)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough * (1 - 1e-9)) step = factor * power;
  }
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::floor(low / step + 1e-9));
  const auto last = static_cast<int64_t>(std::ceil(high / step - 1e-9));
  for (int64_t i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::string chart_svg(const Chart& chart) {
  const Axis x = x_axis(chart);
  const Axis y = chart.log_y ? log_y_axis(chart) : linear_y_axis(chart);
  std::string out = "<svg viewBox=\"0 0 " + n(kWidth) + " " + n(kHeight) +
                    "\" class=\"chart\" role=\"img\" aria-label=\"" + html_text(chart.title) +
                    "\">";
  out += text_at(kLeft, 18, "h", chart.title);
  out += grid(chart, x, y);
  for (const ChartReference& reference : chart.references) {
    const double at = y.at(reference.y);
    out += line(kLeft, at, kWidth - kRight, at, "r");
  }
  size_t with_bars = 0;
  const auto barred = [](const ChartSeries& series) {
    return !series.square && std::any_of(series.points.begin(), series.points.end(),
                                         [](const ChartPoint& point) { return point.has_bar; });
  };
  for (const ChartSeries& series : chart.series) with_bars += barred(series) ? 1 : 0;
  size_t place = 0;
  for (const ChartSeries& series : chart.series) {
    const double middle = (static_cast<double>(with_bars) - 1) / 2;
    const double shift = barred(series) ? kDodge * (static_cast<double>(place++) - middle) : 0.0;
    out += series_svg(series, shift, x, y);
  }
  for (const ChartReference& reference : chart.references) {
    const double at = y.at(reference.y);
    // Under the line where there is no room above it.
    out +=
        text_at(widest_gap(chart, x), at < kTop + 14 ? at + 14 : at - 7, "t m o", reference.name);
  }
  return out + "</svg>";
}

std::string legend_key_svg(const ChartSeries& series) {
  std::string out = "<svg width=\"34\" height=\"14\" viewBox=\"0 0 34 14\" class=\"key\">";
  if (!series.square) out += line(0, 7, 34, 7, stroke_classes(series));
  return out + marker(17, 7, series, "") + "</svg>";
}

}  // namespace blend_cli
