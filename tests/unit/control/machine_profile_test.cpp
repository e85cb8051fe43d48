#include "control/machine_profile.h"

#include <fstream>

#include "support/engine_fixture.h"

namespace blend {
namespace {

using test::EngineTest;

class MachineProfileTest : public EngineTest {
 protected:
  static constexpr uint64_t kTokens = 80;

  Result<MachineProfile> open(const std::string& path, bool measure = false) {
    return MachineProfile::open(model_, path, {.max_tokens = kTokens, .measure = measure}, {});
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
};

TEST_F(MachineProfileTest, MeasuredOnceThenKept) {
  const std::string path = dir_.file("machine");
  auto first = open(path);
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_FALSE(first->kept());
  ASSERT_EQ(first->prefill().points().size(), 2u);
  EXPECT_EQ(first->prefill().points()[0].n_tokens, 64u);
  EXPECT_EQ(first->prefill().points()[1].n_tokens, kTokens);
  auto again = open(path);
  ASSERT_TRUE(again.is_ok());
  EXPECT_TRUE(again->kept());
  EXPECT_EQ(again->prefill().points(), first->prefill().points());
  EXPECT_EQ(again->measured_unix_s(), first->measured_unix_s());
  EXPECT_EQ(read(path), first->serialize());
  auto measured = open(path, true);
  ASSERT_TRUE(measured.is_ok());
  EXPECT_FALSE(measured->kept());
}

TEST_F(MachineProfileTest, AnotherModelOrNumberOfThreadsIsMeasuredAnew) {
  const std::string path = dir_.file("machine");
  ASSERT_TRUE(open(path).is_ok());
  const std::string mine = read(path);
  model_ = load({}, 1);
  EXPECT_FALSE(open(path)->kept());
  EXPECT_TRUE(open(path)->kept());
  test::RandomModelSpec other;
  other.seed = 2;
  model_ = load(other, 1);
  EXPECT_FALSE(open(path)->kept());
  std::string elsewhere = read(path);
  elsewhere.replace(elsewhere.find("cpu "), 4, "cpu another ");
  write(path, elsewhere);
  EXPECT_FALSE(open(path)->kept());
}

TEST_F(MachineProfileTest, DamageIsMeasuredAnew) {
  const std::string path = dir_.file("machine");
  auto whole = open(path);
  ASSERT_TRUE(whole.is_ok());
  const std::string text = read(path);
  ASSERT_TRUE(MachineProfile::parse(text));
  for (size_t n = 0; n + 1 < text.size(); ++n) {
    EXPECT_FALSE(MachineProfile::parse(text.substr(0, n))) << "cut at " << n;
  }
  for (const char* bad : {"", "blend-machine 2\n", "not a profile", "\0\0\0\0"}) {
    write(path, bad);
    auto fresh = open(path);
    ASSERT_TRUE(fresh.is_ok()) << bad;
    EXPECT_FALSE(fresh->kept());
    EXPECT_TRUE(open(path)->kept()) << "and written again";
  }
  std::string points = text;
  points.replace(points.find("prefill 64"), 10, "prefill 99");  // no longer ascending
  EXPECT_FALSE(MachineProfile::parse(points));
}

TEST_F(MachineProfileTest, FailuresSayWhatTheyAre) {
  EXPECT_TRUE(open("").is_ok());  // nothing is kept
  EXPECT_EQ(open(dir_.file("no/such/place")).status().code(), BLEND_E_IO);
  CancelToken cancel;
  cancel.request();
  Watch watch;
  watch.cancel = &cancel;
  EXPECT_EQ(MachineProfile::open(model_, "", {}, watch).status().code(), BLEND_E_CANCELLED);
  std::vector<uint64_t> done;
  watch = {};
  watch.progress = [&](uint64_t d, uint64_t total) {
    EXPECT_EQ(total, 4u);
    done.push_back(d);
    return 0;
  };
  ASSERT_TRUE(MachineProfile::open(model_, "", {.max_tokens = kTokens}, watch).is_ok());
  EXPECT_EQ(done, std::vector<uint64_t>({0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace blend
