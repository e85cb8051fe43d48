// Which chunks an eviction takes, without a store: the policies' orders, hits, and hints.
#include "store/evict/victims.h"

#include <gtest/gtest.h>

#include <string>

namespace blend {
namespace {

constexpr uint64_t kChunk = 10;  // bytes of each

Sha256 id_of(char name) {
  Sha256 id{};
  id[0] = static_cast<uint8_t>(name);
  return id;
}

// Chunks a, b, ... with these counts of hits, offered in this order.
class StoreVictims : public testing::Test {
 protected:
  void hit(char name, uint64_t stamp_us) { touches.add(id_of(name), stamp_us); }
  void hint(const std::string& names, size_t n_in_window) {
    NeedMap needs;
    for (const char name : names) {
      needs.emplace(id_of(name), Need{needs.size(), needs.size() < n_in_window});
    }
    policy = make_hinted_policy(std::move(policy), std::move(needs));
  }
  VictimChooser choose(const std::vector<uint32_t>& uses, size_t n_victims, size_t most = 64,
                       std::optional<Need> newcomer = std::nullopt) {
    VictimChooser chooser(*policy, touches, n_victims * kChunk, most, newcomer);
    for (size_t i = 0; i < uses.size() && !chooser.done(); ++i) {
      chooser.offer(id_of(static_cast<char>('a' + i)), {1 + i, kChunk, uses[i], false, {}});
    }
    chooser.choose();
    return chooser;
  }
  static std::string victims(const VictimChooser& chooser) {
    std::string names;
    for (const auto& victim : chooser.victims()) names += static_cast<char>(victim.id[0]);
    return names;
  }
  // "b1": b is kept with a new stamp and one hit.
  static std::string restamps(const VictimChooser& chooser) {
    std::string names;
    for (const Restamp& r : chooser.restamps()) {
      EXPECT_GT(r.stamp_us, r.old.stamp_us);
      names += static_cast<char>(r.id[0]) + std::to_string(r.uses);
    }
    return names;
  }

  std::shared_ptr<const EvictionPolicy> policy = make_policy(Eviction::lru);
  Touches touches;
};

TEST_F(StoreVictims, AreTheOldestAndNoMoreThanNeeded) {
  const VictimChooser two = choose({0, 0, 0}, 2);
  EXPECT_EQ(victims(two), "ab");
  EXPECT_EQ(restamps(two), "");
  EXPECT_TRUE(two.frees_enough());
  const VictimChooser all = choose({0, 0, 0}, 4);
  EXPECT_EQ(victims(all), "abc");
  EXPECT_FALSE(all.frees_enough());
}

TEST_F(StoreVictims, AreNoMoreThanABatch) {
  const VictimChooser batch = choose({0, 0, 0}, 3, 2);
  EXPECT_EQ(victims(batch), "ab");
  EXPECT_FALSE(batch.frees_enough());
}

TEST_F(StoreVictims, HitsThatAreNotInTheIndexYetCountUnlessThePolicyIgnoresThem) {
  hit('a', 100);
  hit('a', 200);
  const VictimChooser one = choose({3, 0}, 1);
  EXPECT_EQ(victims(one), "b");
  EXPECT_EQ(restamps(one), "a5");
  EXPECT_EQ(one.restamps()[0].stamp_us, 200u);
  EXPECT_EQ(victims(choose({3, 0}, 2)), "ba");  // the last resort
  policy = make_policy(Eviction::fifo);
  EXPECT_EQ(victims(choose({3, 0}, 1)), "a");
}

TEST_F(StoreVictims, ReuseGivesSecondChancesAndTakesThemBackForWantOfOthers) {
  policy = make_policy(Eviction::reuse);
  const VictimChooser one = choose({1, 8, 0}, 2);
  EXPECT_EQ(victims(one), "ac");
  EXPECT_EQ(restamps(one), "b4");
  EXPECT_EQ(victims(choose({1, 8, 2}, 2)), "ab");
  // A scan of hit chunks ends: only a limited number have a second chance.
  EXPECT_EQ(victims(choose(std::vector<uint32_t>(20, 5), 1)), "q");
}

TEST_F(StoreVictims, HintedChunksGoLastTheFarthestNeedFirst) {
  hint("cab", 1);  // c is needed first, and alone in the window
  EXPECT_EQ(victims(choose({0, 0, 0, 0}, 1)), "d");
  EXPECT_EQ(victims(choose({0, 0, 0, 0}, 2)), "db");
  const VictimChooser three = choose({0, 0, 0, 0}, 4);
  EXPECT_EQ(victims(three), "dba");
  EXPECT_FALSE(three.frees_enough());
  EXPECT_EQ(three.hinted_bytes(), kChunk);
  EXPECT_EQ(restamps(three), "c0");
}

TEST_F(StoreVictims, AChunkInsideTheWindowGoesOnlyForOneThatIsNeededSooner) {
  hint("xab", 3);  // x is the newcomer
  EXPECT_EQ(victims(choose({0, 0}, 1)), "");
  EXPECT_EQ(victims(choose({0, 0}, 1, 64, Need{0, true})), "b");
  EXPECT_EQ(victims(choose({0, 0}, 1, 64, Need{2, true})), "");
}

}  // namespace
}  // namespace blend
