// Which states of a Gated DeltaNet a cache keeps: what a write drops, and what two caches share.
#include "backend/cpu/scan_states.h"

#include <gtest/gtest.h>

namespace blend::cpu {
namespace {

ScanState state_of(uint32_t n_rows) {
  auto buffer = AlignedBuffer::allocate(64);
  return {n_rows, std::make_shared<AlignedBuffer>(std::move(*buffer)), false};
}

TEST(ScanStates, TheLastOneBeforeARowIsFound) {
  ScanStates states;
  EXPECT_EQ(states.before(9).buffer, nullptr);
  states.keep(state_of(3), state_of(7));
  EXPECT_EQ(states.before(2).buffer, nullptr);
  EXPECT_EQ(states.before(3).n_rows, 3u);
  EXPECT_EQ(states.before(6).n_rows, 3u);
  EXPECT_EQ(states.before(7).n_rows, 7u);
  EXPECT_EQ(states.take(8).n_rows, 7u);
  EXPECT_EQ(states.before(8).n_rows, 3u) << "what was taken is no longer kept";
}

TEST(ScanStates, AWriteDropsThoseThatItIsIn) {
  ScanStates states;
  states.keep(state_of(3), state_of(7));
  states.changed(7);
  EXPECT_EQ(states.before(9).n_rows, 7u);
  states.changed(6);
  EXPECT_EQ(states.before(9).n_rows, 3u);
  states.changed(2);
  EXPECT_EQ(states.before(9).buffer, nullptr);
}

// Whoever goes on first must not change the other's.
TEST(ScanStates, BothKnowThatTheyShare) {
  ScanStates one, other;
  one.keep(state_of(3), state_of(7));
  other.adopt(one, 5);
  EXPECT_EQ(other.before(9).n_rows, 3u) << "the rows after the fifth are not the other's";
  EXPECT_EQ(other.before(9).buffer, one.before(5).buffer);
  EXPECT_TRUE(other.before(9).shared);
  EXPECT_TRUE(one.before(5).shared);
  EXPECT_TRUE(one.before(9).shared);
}

}  // namespace
}  // namespace blend::cpu
