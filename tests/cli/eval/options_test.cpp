// Lists of choices to configurations.
#include "eval/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "choices.h"

namespace blend_cli {
namespace {

TEST(EvalOptions, ConfigurationsAreTheProduct) {
  const auto configs = make_configs({"hkvd", "reuse", "full"}, {"v", "k", "v"}, {0.3, 0.1, 0.3},
                                    {"alone", "bos", "alone"}, 2);
  // full, and for two kinds of record: reuse, two metrics at two ratios.
  ASSERT_EQ(configs.size(), 1u + 2u * (1u + 2u * 2u));
  EXPECT_EQ(configs[0].policy, BLEND_POLICY_FULL);
  EXPECT_EQ(configs[1].policy, BLEND_POLICY_REUSE);
  EXPECT_EQ(configs[2].ratio, 0.1);
  EXPECT_EQ(configs[3].ratio, 0.3);
  EXPECT_EQ(configs[3].check_layer, 2u);
  EXPECT_EQ(configs[4].metric, BLEND_METRIC_K);
  EXPECT_EQ(configs[6].records, "bos");
  EXPECT_EQ(make_configs({"reuse"}, {"v"}, {0.1}, {"alone"}, 1).size(), 1u);
}

TEST(EvalOptions, EachCodecIsComparedWithTheFirstLosslessOneBeforeIt) {
  const auto plain = make_configs({"full", "reuse", "hkvd"}, {"v"}, {0.1}, {"alone"}, 1);
  EXPECT_EQ(with_codecs(plain, {}).size(), plain.size());
  const auto configs = with_codecs(plain, {"int8", "none", "zstd", "rans", "none"});
  // full once; reuse and hkvd with four codecs each.
  ASSERT_EQ(configs.size(), 1u + 2u * 4u);
  EXPECT_EQ(configs[0].codec, BLEND_CODEC_DEFAULT);
  EXPECT_FALSE(configs[1].unrounded);  // int8 stands before any
  EXPECT_FALSE(configs[2].unrounded);
  EXPECT_EQ(configs[3].unrounded, 2u);
  EXPECT_EQ(configs[4].unrounded, 2u);
  EXPECT_EQ(configs[4].codec, BLEND_CODEC_RANS);
  EXPECT_EQ(configs[8].unrounded, 6u);
  EXPECT_EQ(config_name(configs[4]), "reuse, rans");
  EXPECT_EQ(config_name(configs[8]), "hkvd v, rans");
}

TEST(EvalOptions, OnlyPoliciesThatMeasureHaveMetricsAndCheckLayers) {
  EvalSelection selection;
  selection.checks = {1, 3};
  selection.relative = true;
  selection.seed = 9;
  const auto configs = make_configs({"first_k", "hkvd:3+random", "question"}, {"v", "kv"},
                                    {0.1, 0.2}, {"alone"}, 1, selection);
  // first_k twice; the two that measure by two metrics, two numbers of check layers, two ratios.
  ASSERT_EQ(configs.size(), 2u + 2u * 8u);
  EXPECT_EQ(config_name(configs[0]), "first_k");
  EXPECT_EQ(configs[0].checks, 1u);
  EXPECT_EQ(config_name(configs[2]), "hkvd:3+random v relative");
  EXPECT_EQ(config_name(configs[4]), "hkvd:3+random v relative, 3 checks");
  EXPECT_EQ(config_name(configs[17]), "question kv relative, 3 checks");
  EXPECT_EQ(configs[2].seed, 9u);
  EXPECT_EQ(showcase_of(configs), configs.size()) << "only HKVD's rows are drawn";
}

TEST(EvalOptions, HkvdAndQuestionWeigh) {
  const auto configs = make_configs({"question", "hkvd+question", "hkvd"}, {"v", "v_weighed", "kv"},
                                    {0.1}, {"alone"}, 1, {});
  std::vector<std::string> names;
  for (const EvalConfig& config : configs) names.push_back(config_name(config));
  EXPECT_EQ(names,
            (std::vector<std::string>{"question v", "question v_weighed", "question kv",
                                      "hkvd+question v", "hkvd+question v_weighed",
                                      "hkvd+question kv", "hkvd v", "hkvd v_weighed", "hkvd kv"}));
}

TEST(EvalOptions, ABudgetTakesTheRatiosPlace) {
  const auto configs = with_budgets(
      make_configs({"reuse", "cascade", "hkvd"}, {"v_weighed"}, {0, 0.3}, {"alone"}, 1, {}),
      {0.1, 0.2});
  ASSERT_EQ(configs.size(), 5u);
  EXPECT_EQ(configs[0].flops, 0.0) << "nothing of reuse is to be chosen";
  EXPECT_EQ(config_name(configs[1]), "cascade v");
  EXPECT_EQ(configs[1].flops, 0.1);
  EXPECT_EQ(configs[2].flops, 0.2);
  EXPECT_EQ(config_name(configs[4]), "hkvd v_weighed");
}

TEST(EvalOptions, PoliciesAreJoinedByPlus) {
  // APE alone has no ratio; a union with it has both lists.
  EvalSelection ape;
  ape.ape = {{0.9, 0.9}, {1, 0.8}, {0.9, 0.9}};
  const auto tempered =
      make_configs({"ape", "hkvd+ape", "hkvd"}, {"v"}, {0.1, 0.2}, {"alone"}, 1, ape);
  ASSERT_EQ(tempered.size(), 2u + 4u + 2u);
  EXPECT_EQ(config_name(tempered[1]), "ape 1:0.8");
  EXPECT_EQ(tempered[1].ratio, 0.0);
  EXPECT_EQ(config_name(tempered[3]), "hkvd+ape 0.9:0.9 v");
  EXPECT_EQ(tempered[3].ratio, 0.2);
  EXPECT_EQ(config_name(tempered[7]), "hkvd v");
  EXPECT_EQ(check_ape("0.9:0.8"), "");
  EXPECT_NE(check_ape("0.9"), "");
  EXPECT_NE(check_ape("0:1"), "");
  const PolicySpec spec = parse_policy("hkvd:0.7+first_k");
  EXPECT_EQ(spec.policy, BLEND_POLICY_UNION);
  ASSERT_EQ(spec.terms.size(), 2u);
  EXPECT_EQ(spec.terms[0].policy, BLEND_POLICY_HKVD);
  EXPECT_EQ(spec.terms[0].share, 0.7);
  EXPECT_EQ(spec.terms[1].policy, BLEND_POLICY_FIRST_K);
  EXPECT_EQ(spec.terms[1].share, 1.0);
  EXPECT_TRUE(spec.measures());
  EXPECT_FALSE(parse_policy("first_k+random").measures());
  EXPECT_TRUE(parse_policy("random").chooses());
  EXPECT_FALSE(parse_policy("reuse").chooses());
  for (const char* bad : {"", "hkvd+", "hkvd+full", "reuse+hkvd", "hkvd:0+random", "hkvd:x+random",
                          "guess", "hkvd:-1+random", "callback"}) {
    EXPECT_NE(check_policy(bad), "") << bad;
  }
}

TEST(EvalOptions, CheckLayersAreLayerAndRatio) {
  const auto checks = parse_check_layers("1:0.3,4:0.15");
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[1].layer, 4u);
  EXPECT_EQ(checks[1].ratio, 0.15);
  for (const char* bad : {"", "1", "1:", ":1", "1.5:0.2", "-1:0.2", "1:0.2,", "1:0.2:3"}) {
    EXPECT_NE(check_check_layers(bad), "") << bad;
  }
}

TEST(EvalOptions, TheHeadlineIsTheDefaultPolicys) {
  const std::vector<std::string> policies = {"full", "reuse", "attention", "hkvd"};
  const auto headline = [](const std::vector<EvalConfig>& configs) {
    const EvalConfig& told = configs.at(headline_of(configs));
    return config_name(told) + ' ' + std::to_string(told.ratio).substr(0, 4) + ' ' + told.records;
  };
  EXPECT_EQ(headline(make_configs(policies, {"v"}, {0.05, 0.15, 1}, {"head", "similar:4"}, 1)),
            "attention 0.15 similar:4");
  for (const char* const records : {"joined:2", "preceding:2", "predecessor"}) {
    EXPECT_EQ(headline(make_configs(policies, {"v"}, {0.15}, {"head", records}, 1)),
              std::string("attention 0.15 ") + records);
  }
  const auto by_itself = make_configs(policies, {"v"}, {0.2, BLEND_RATIO_FIDELITY}, {"head"}, 1);
  EXPECT_TRUE(by_itself.at(headline_of(by_itself)).keeps_agreement());
  const auto none = make_configs({"full", "hkvd"}, {"v"}, {0.2}, {"head"}, 1);
  EXPECT_EQ(headline_of(none), none.size());
}

TEST(EvalOptions, TheShowcaseIsNearestToFifteenPercent) {
  const auto configs =
      make_configs({"full", "reuse", "hkvd"}, {"k", "v"}, {0.05, 0.2, 1}, {"bos", "alone"}, 1);
  const EvalConfig& shown = configs.at(showcase_of(configs));
  EXPECT_EQ(shown.policy, BLEND_POLICY_HKVD);
  EXPECT_EQ(shown.ratio, 0.2);
  EXPECT_EQ(shown.metric, BLEND_METRIC_K);
  EXPECT_EQ(shown.records, "bos");
  const auto none = make_configs({"full", "reuse"}, {}, {}, {"alone"}, 1);
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
