// Lists of choices to configurations.
#include "eval_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "choices.h"
#include "command.h"

namespace blend_cli {
namespace {

using Texts = std::vector<std::string>;

TEST(EvalOptions, ACommaOfATextBelongsToIt) {
  EXPECT_EQ(split_chunk_prefixes("none,bos"), (Texts{"none", "bos"}));
  EXPECT_EQ(split_chunk_prefixes("text:Well, none of it,text:so,none"),
            (Texts{"text:Well, none of it", "text:so", "none"}));
  EXPECT_EQ(split_chunk_prefixes("text:a,nonesuch,bosun"), Texts{"text:a,nonesuch,bosun"});
  EXPECT_EQ(split_chunk_prefixes("text:"), Texts{"text:"});
  for (const char* bad : {"", "eos", "none,", "none,,bos", ",none", "nonebos"}) {
    EXPECT_THROW(split_chunk_prefixes(bad), CommandError) << bad;
  }
}

TEST(EvalOptions, ConfigurationsAreTheProduct) {
  const auto configs = make_configs({"hkvd", "reuse", "full"}, {"v", "k", "v"}, {0.3, 0.1, 0.3},
                                    {"none", "bos", "none"}, 2);
  // full, and for two prefixes: reuse, two metrics at two ratios.
  ASSERT_EQ(configs.size(), 1u + 2u * (1u + 2u * 2u));
  EXPECT_EQ(configs[0].policy, BLEND_POLICY_FULL);
  EXPECT_EQ(configs[1].policy, BLEND_POLICY_REUSE);
  EXPECT_EQ(configs[2].ratio, 0.1);
  EXPECT_EQ(configs[3].ratio, 0.3);
  EXPECT_EQ(configs[3].check_layer, 2u);
  EXPECT_EQ(configs[4].metric, BLEND_METRIC_K);
  EXPECT_EQ(configs[6].chunk_prefix, "bos");
  EXPECT_EQ(make_configs({"reuse"}, {"v"}, {0.1}, {"none"}, 1).size(), 1u);
}

TEST(EvalOptions, TheShowcaseIsNearestToFifteenPercent) {
  const auto configs =
      make_configs({"full", "reuse", "hkvd"}, {"k", "v"}, {0.05, 0.2, 1}, {"bos", "none"}, 1);
  const EvalConfig& shown = configs.at(showcase_of(configs));
  EXPECT_EQ(shown.policy, BLEND_POLICY_HKVD);
  EXPECT_EQ(shown.ratio, 0.2);
  EXPECT_EQ(shown.metric, BLEND_METRIC_K);
  EXPECT_EQ(shown.chunk_prefix, "bos");
  const auto none = make_configs({"full", "reuse"}, {}, {}, {"none"}, 1);
  EXPECT_EQ(showcase_of(none), none.size());
}

TEST(EvalOptions, TheCommandIsQuotedForAShell) {
  EXPECT_EQ(shell_command({"blend", "--ratios", "0.1,0.2", "a b", "it's", ""}),
            "blend --ratios 0.1,0.2 'a b' 'it'\\''s' ''");
}

TEST(EvalOptions, TheQuestionIsPutAsItIs) {
  EXPECT_EQ(question_text("Q: {question}\\nA:", "a\\nb {question}"), "Q: a\\nb {question}\nA:");
  EXPECT_EQ(question_text("{question}\\t{question}", "x"), "x\tx");
  EXPECT_NE(check_question_template("nothing"), "");
}

}  // namespace
}  // namespace blend_cli
