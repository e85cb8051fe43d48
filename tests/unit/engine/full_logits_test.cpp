#include "engine/full_logits.h"

#include <cmath>

#include "support/engine_fixture.h"

namespace blend {
namespace {

class FullLogitsTest : public test::EngineTest {};

TEST_F(FullLogitsTest, AreThoseOfAPrefillThatEndsAtEachRow) {
  for (const test::RandomFamily& family : test::random_families()) {
    const auto model = load(family.spec);
    ASSERT_NE(model, nullptr) << family.name;
    model_ = model;
    const std::vector<int32_t> text = tokens(30, 3);
    std::vector<uint32_t> rows;
    double worst = 0;
    const auto compare = [&](uint32_t row, std::span<const float> logits) {
      rows.push_back(row);
      auto sequence = Sequence::create(model, 64);
      BLEND_RETURN_IF_ERROR(sequence.status());
      BLEND_RETURN_IF_ERROR((*sequence)->append(std::span(text).first(row + 1), {}));
      for (size_t i = 0; i < logits.size(); ++i) {
        const double off = static_cast<double>(logits[i] - (*sequence)->logits()[i]);
        worst = std::max(worst, std::abs(off));
      }
      return Status::ok();
    };
    const Status status = full_logits(*model, text, 12, compare, {});
    ASSERT_TRUE(status.is_ok()) << family.name << ": " << status.message();
    ASSERT_EQ(rows.size(), 18u) << family.name << ": more than are computed at once";
    for (uint32_t i = 0; i < 18; ++i) EXPECT_EQ(rows[i], 12 + i);
    EXPECT_LT(worst, 2e-3) << family.name;
  }
}

TEST_F(FullLogitsTest, EndWhenTheyAreAskedTo) {
  const std::vector<int32_t> text = tokens(30, 3);
  int layers = 0;
  const Watch watch{nullptr, [&](uint64_t, uint64_t) { return ++layers == 2 ? 7 : 0; }};
  const auto none = [](uint32_t, std::span<const float>) { return Status::ok(); };
  EXPECT_EQ(full_logits(*model_, text, 12, none, watch).code(), BLEND_E_CALLBACK);
  EXPECT_TRUE(full_logits(*model_, text, 30, none, {}).is_ok()) << "no row";
}

}  // namespace
}  // namespace blend
