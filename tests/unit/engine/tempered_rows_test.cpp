#include "engine/tempered_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace blend {
namespace {

std::vector<int> slots_at(TemperedRows& rows, uint32_t layer, uint32_t n) {
  const Tempering t = rows.at(layer, n);
  return t.slots == nullptr ? std::vector<int>{} : std::vector<int>(t.slots, t.slots + n);
}

TEST(TemperedRows, CountFromTheirLayerOn) {
  TemperedRows rows;
  EXPECT_TRUE(rows.empty());
  rows.set(0.5, 0.25);
  rows.add(1, 0);
  rows.add(3, 2);
  rows.add(3, 1);  // it is already
  EXPECT_EQ(rows.n_rows(), 2u);
  EXPECT_EQ(slots_at(rows, 0, 6), (std::vector<int>{0, 1, 0, 0, 0, 0})) << "also past the last";
  EXPECT_EQ(slots_at(rows, 1, 6), (std::vector<int>{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(slots_at(rows, 2, 4), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(slots_at(rows, 2, 1), std::vector<int>{}) << "none of these";
  const Tempering t = rows.at(2, 4);
  EXPECT_EQ(t.temperature, 0.5f);
  EXPECT_EQ(t.scale, 0.25f);
}

TEST(TemperedRows, MoveWithAnEdit) {
  TemperedRows rows;
  for (const uint32_t row : {1u, 2u, 4u}) rows.add(row, 0);
  TemperedRows shorter = rows;
  shorter.replace(1, 2, 1);  // 1 and 2 go, one row comes
  EXPECT_EQ(shorter.n_rows(), 1u);
  EXPECT_EQ(slots_at(shorter, 0, 5), (std::vector<int>{0, 0, 0, 1, 0}));
  TemperedRows longer = rows;
  longer.replace(2, 0, 2);
  EXPECT_EQ(longer.n_rows(), 3u);
  EXPECT_EQ(slots_at(longer, 0, 7), (std::vector<int>{0, 1, 0, 0, 1, 0, 1}));
  rows.replace(9, 3, 4);  // after all of them
  EXPECT_EQ(slots_at(rows, 0, 5), (std::vector<int>{0, 1, 1, 0, 1}));
  rows.replace(4, 100, 0);
  EXPECT_EQ(rows.n_rows(), 2u);
}

}  // namespace
}  // namespace blend
