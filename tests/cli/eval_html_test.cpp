// Escaping, labels, and the geometry that a chart stands on.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "blend/blend.h"
#include "eval_html_chart.h"
#include "eval_html_rows.h"
#include "eval_html_text.h"

namespace blend_cli {
namespace {

TEST(EvalHtml, EscapesAndMends) {
  EXPECT_EQ(html_text("<b a=\"1\" c='2'>&amp;"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(html_text("a\xFF"
                      "b\xC3"),
            "a" + mark + "b" + mark);
  EXPECT_EQ(html_text("\xED\xA0\x80"), mark + mark + mark);  // a surrogate
  EXPECT_EQ(html_text("\xC0\xAF"), mark + mark);             // overlong
  EXPECT_EQ(html_text("\xE2\x82\xAC\xF0\x9F\x98\x80"), "\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(html_text(std::string("\0\x1B\n", 3)), mark + mark + "\n");
}

TEST(EvalHtml, LabelsTokens) {
  EXPECT_EQ(token_label(" the"), "the");
  EXPECT_EQ(token_label("\n"), "\xE2\x86\xB5");
  EXPECT_EQ(token_label("  "), "\xE2\x90\xA3");
  EXPECT_EQ(token_label("\xE2"), "\\xE2");
}

TEST(EvalHtml, NumbersAreShort) {
  EXPECT_EQ(svg_number(1.5), "1.5");
  EXPECT_EQ(svg_number(2), "2");
  EXPECT_EQ(svg_number(1.0 / 3), "0.33");
  EXPECT_EQ(svg_number(-0.001), "0");
  EXPECT_EQ(svg_number(100), "100");
}

TEST(EvalHtml, TicksAreRound) {
  EXPECT_EQ(axis_ticks(0, 100, 5), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(axis_ticks(0, 0.9, 5).size(), 6u);  // steps of 0.2
  EXPECT_EQ(axis_ticks(3, 3, 5).size(), 1u);
  for (const double high : {0.013, 1.7, 42.0, 9999.0}) {
    const std::vector<double> ticks = axis_ticks(0, high, 5);
    EXPECT_GE(ticks.back(), high * (1 - 1e-9));
    EXPECT_GE(ticks.size(), 3u);
    EXPECT_LE(ticks.size(), 8u);
  }
}

// The y of the circle that stands for a point.
double circle_y(const std::string& svg, size_t which) {
  size_t at = 0;
  for (size_t i = 0; i <= which; ++i) at = svg.find("cy=\"", at) + 4;
  return std::stod(svg.substr(at));
}

TEST(EvalHtml, MorePointsUp) {
  Chart chart;
  chart.title = "a < b";
  ChartSeries series;
  series.points = {{0, 1, false, 0, 0}, {0.5, 10, false, 0, 0}, {1, 100, false, 0, 0}};
  chart.series = {series};
  chart.log_y = true;
  const std::string svg = chart_svg(chart);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  const double step = circle_y(svg, 0) - circle_y(svg, 1);
  EXPECT_GT(step, 10);
  EXPECT_NEAR(circle_y(svg, 1) - circle_y(svg, 2), step, 0.02);  // powers of ten: equal steps
}

TEST(EvalHtml, NothingIsNotANumber) {
  for (const double y : {0.0, 1e-14, 5.0}) {
    for (const bool log : {false, true}) {
      Chart chart;
      chart.log_y = log;
      ChartSeries series;
      series.points = {{0.2, y, true, 0, y}};
      chart.series = {series};
      const std::string svg = chart_svg(chart);
      EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
    }
  }
  EXPECT_EQ(chart_svg(Chart{}).find("nan"), std::string::npos);
}

RowTrace small_trace() {
  RowTrace trace;
  trace.n_rows = 5;
  trace.segments = {{BLEND_SEGMENT_CHUNK, false, 0, 3}, {BLEND_SEGMENT_QUESTION, false, 3, 2}};
  trace.selected = {1};
  trace.deviation = {0, 4, 1, 0, 0};
  trace.layers = {
      {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}, {{0, 1, 2, 3, 4}, {1, 3, 4}}, {{1, 3, 4}, {4}}};
  return trace;
}

TEST(EvalHtml, HeatIsTheRootOfTheShare) {
  const std::vector<double> heat = heat_of(small_trace());
  EXPECT_NEAR(heat[1], 1, 0.01);
  EXPECT_NEAR(heat[2], std::sqrt(1 / 3.97), 0.01);  // 3.97: the 99th percentile of {4, 1}
  EXPECT_EQ(heat[3], 0);
  RowTrace none = small_trace();
  none.deviation.assign(5, 0);
  for (const double value : heat_of(none)) EXPECT_EQ(value, 0);
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(EvalHtml, RowsAreDrawnByTheirState) {
  const std::string svg = rows_svg(small_trace());
  // Layer 0: one run. Layer 1: K,V | full | K,V | full. Layer 2: stored | K,V | stored | K,V |
  // full.
  EXPECT_EQ(count(svg, "class=\"full\""), 4u);
  EXPECT_EQ(count(svg, "class=\"kv\""), 4u);
  EXPECT_EQ(count(svg, "class=\"stored\""), 2u);
  EXPECT_EQ(count(svg, "class=\"pick\""), 1u);
}

TEST(EvalHtml, TokensStandUnderTheirHeat) {
  const std::string html = token_strip_html(small_trace(), {" a", " <b>", "c", " d", " e"});
  EXPECT_EQ(count(html, "\"tok pick\""), 1u);
  EXPECT_NE(html.find("1 of 3 recomputed"), std::string::npos);
  EXPECT_NE(html.find("always computed"), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;"), std::string::npos);
  EXPECT_EQ(count(html, "opacity:"), 2u);
  EXPECT_EQ(count(html, "tok j"), 1u);  // "c" goes on where "<b>" ends
}

}  // namespace
}  // namespace blend_cli
