// The report's file: what it embeds is what it was given, and cannot end where it is embedded.
#include "eval/page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "eval/token_label.h"

namespace blend_cli {
namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// The text of the element that holds the figures.
std::string embedded(const std::string& html) {
  const std::string begin = "id=\"report\">";
  const size_t from = html.find(begin) + begin.size();
  return html.substr(from, html.find("</script>", from) - from);
}

std::string through_the_page(const std::string& text) {
  const std::string block = embedded(page_html({{"text", text}}));
  EXPECT_EQ(block.find('<'), std::string::npos) << block;
  return nlohmann::json::parse(block)["text"];
}

TEST(EvalPage, EscapesAndMends) {
  for (const char* text : {"<b a=\"1\" c='2'>&amp;", "</script><script>alert(1)</script>",
                           "<!--<script>", "@REPORT@ \\u003c", "\xE2\x82\xAC\xF0\x9F\x98\x80"}) {
    EXPECT_EQ(through_the_page(text), text);
  }
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(through_the_page("a\xFF"
                             "b\xC3"),
            "a" + mark + "b" + mark);
  for (const char* broken : {"\xED\xA0\x80", "\xC0\xAF"}) {  // a surrogate; overlong
    const std::string mended = through_the_page(broken);
    EXPECT_EQ(mended.size(), count(mended, mark) * mark.size()) << mended;
    EXPECT_FALSE(mended.empty());
  }
}

TEST(EvalPage, IsWhole) {
  const std::string html = page_html({{"a", 1}});
  EXPECT_EQ(embedded(html), "{\"a\":1}");
  EXPECT_EQ(html.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_NE(html.find("axisTicks"), std::string::npos);         // draw.js
  EXPECT_NE(html.find("function heading"), std::string::npos);  // page.js
  EXPECT_NE(html.find("--heat:"), std::string::npos);           // page.css
  EXPECT_EQ(html.find(".js@"), std::string::npos);
  EXPECT_EQ(html.find(".css@"), std::string::npos);
}

TEST(EvalPage, LabelsTokens) {
  EXPECT_EQ(token_label(" the"), "the");
  EXPECT_EQ(token_label("\n"), "\xE2\x86\xB5");
  EXPECT_EQ(token_label("  "), "\xE2\x90\xA3");
  EXPECT_EQ(token_label("\xE2"), "\\xE2");
  EXPECT_EQ(token_label("\xED\xA0\x80"), "\\xED\\xA0\\x80");  // a surrogate
  EXPECT_EQ(token_label("\xC0\xAF"), "\\xC0\\xAF");           // overlong
  EXPECT_EQ(token_label("\xE2\x82\xAC\xF0\x9F\x98\x80"), "\xE2\x82\xAC\xF0\x9F\x98\x80");
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

TEST(EvalPage, HeatIsTheRootOfTheShare) {
  const std::vector<double> heat = heat_of(small_trace());
  EXPECT_NEAR(heat[1], 1, 0.01);
  EXPECT_NEAR(heat[2], std::sqrt(1 / 3.97), 0.01);  // 3.97: the 99th percentile of {4, 1}
  EXPECT_EQ(heat[3], 0);
  RowTrace none = small_trace();
  none.deviation.assign(5, 0);
  for (const double value : heat_of(none)) EXPECT_EQ(value, 0);
}

// Two questions, the second one telling; reuse of another kind of record than the showcase's first.
TEST(EvalPage, TellingQuestionsAndDifferencesAreShown) {
  EvalPlan plan;
  plan.configs.resize(4);
  plan.configs[0].policy = BLEND_POLICY_FULL;
  plan.configs[1].policy = plan.configs[2].policy = BLEND_POLICY_REUSE;
  plan.configs[3].policy = BLEND_POLICY_HKVD;
  plan.configs[1].records = "alone";
  plan.configs[2].records = plan.configs[3].records = "bos";
  plan.showcase = 3;
  EvalResult result;
  result.questions.resize(2);
  std::vector<Record> records(2);
  for (size_t i = 0; i < 2; ++i) {
    QuestionResult& question = result.questions[i];
    question.record = i;
    question.outcomes.resize(4);
    question.trace = small_trace();
    question.tokens = {10, 11, 12, 13, 14};
    records[i].chunks = {"chunk of " + std::to_string(i)};
  }
  result.questions[1].telling = true;
  result.questions[0].outcomes[2].same_answer = true;
  const auto piece = [](int32_t token) { return std::string(token == 12 ? "c" : " d"); };
  const nlohmann::json page = page_json(plan, records, result, piece);

  EXPECT_EQ(page["reuse"], 2);
  EXPECT_EQ(page["showcase"], 3);
  ASSERT_EQ(page["prompts"].size(), 2u);
  EXPECT_EQ(page["prompts"][0]["question"], 1);
  EXPECT_EQ(page["prompts"][0]["tokens"][2], (nlohmann::json{{"text", "c"}, {"joins", true}}));
  EXPECT_EQ(page["prompts"][0]["tokens"][3], (nlohmann::json{{"text", "d"}, {"joins", false}}));
  const nlohmann::json& rows = page["prompts"][0]["rows"];
  EXPECT_EQ(rows["segments"][1]["kind"], "question");
  EXPECT_EQ(rows["selected"], (std::vector<uint32_t>{1}));
  EXPECT_EQ(rows["layers"][1]["full"], (std::vector<uint32_t>{1, 3, 4}));
  ASSERT_EQ(page["differing"].size(), 1u);
  EXPECT_EQ(page["differing"][0]["question"], 1);
  EXPECT_EQ(page["differing"][0]["chunks"][0], "chunk of 1");

  plan.configs.resize(1);
  plan.showcase = 1;
  const nlohmann::json bare = page_json(plan, records, result, piece);
  EXPECT_TRUE(bare["reuse"].is_null());
  EXPECT_TRUE(bare["showcase"].is_null());
  EXPECT_TRUE(bare["differing"].empty());
}

}  // namespace
}  // namespace blend_cli
