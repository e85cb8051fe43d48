// A codec that costs more than the fuse itself is named, with the way out.
#include <gtest/gtest.h>

#include "eval/options.h"
#include "eval/report.h"

namespace blend_cli {
namespace {

// reuse with exact chunks, then with int8, int4 and rans, as the configurations of a run are.
EvalSummary four_codecs(double fuse, const std::vector<double>& rounding) {
  EvalSummary summary;
  const auto configs = with_codecs(make_configs({"reuse"}, {}, {}, {"similar:4"}, 1),
                                   {"none", "int8", "int4", "rans"});
  const std::vector<uint64_t> bytes = {16, 8, 5, 3};
  for (const EvalConfig& config : configs) {
    if (config.policy == BLEND_POLICY_FULL) continue;
    const size_t i = summary.configs.size();
    Summary& s = summary.configs.emplace_back();
    s.config = config;
    if (s.config.unrounded) s.config.unrounded = 0;
    s.kl_mean = fuse;
    s.kl_rounding_mean = i == 0 ? 0 : rounding[i - 1];
    s.size.stored_bytes = bytes[i];
    s.size.elements = 8;
  }
  return summary;
}

TEST(CostlyCodecs, AreNamedWithTheCheapestThatIsNot) {
  const auto said = costly_codecs(four_codecs(0.01, {0.0001, 0.005, 0.02}));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(
      said[0],
      "codec rans costs more than the fuse itself: it adds a KL of 0.0200 where reuse (records "
      "similar:4) leaves 0.0100; take int4, or zstd, which is lossless");
}

TEST(CostlyCodecs, AreNoneWhereTheFuseCostsMore) {
  EXPECT_TRUE(costly_codecs(four_codecs(0.03, {0.0001, 0.005, 0.02})).empty());
}

TEST(CostlyCodecs, LeaveALosslessOneWhereAllOfThemRoundTooMuch) {
  const auto said = costly_codecs(four_codecs(0.00001, {0.0001, 0.005, 0.02}));
  ASSERT_EQ(said.size(), 3u);
  EXPECT_NE(said[0].find("take zstd, which is lossless"), std::string::npos) << said[0];
}

}  // namespace
}  // namespace blend_cli
