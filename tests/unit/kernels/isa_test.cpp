// The detected instruction sets against those that the system reports, and caps on them.
#include "cpu/isa.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace blend::kernels {
namespace {

class Isa : public testing::Test {
 protected:
  // Also of a cap that BLEND_TEST_ISA set: these tests say what the machine has.
  void SetUp() override { ASSERT_TRUE(cap_isa(nullptr)); }
  void TearDown() override { cap_isa(std::getenv("BLEND_TEST_ISA")); }

  static std::string computes() {
    return std::string(simd_name()) + ", " + int8_path_name(int8_path());
  }
};

// Flags of the first CPU. None in an emulator that shows its host's file.
std::set<std::string> flags_of_proc() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    return HWY_ARCH_ARM && !flags.contains("asimd") ? std::set<std::string>() : flags;
  }
  return {};
}

TEST_F(Isa, WithoutACapIsWhatTheSystemSaysOfTheCpu) {
  const std::set<std::string> flags = flags_of_proc();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo names no instruction sets";
#if HWY_ARCH_X86
  const bool avx512 = flags.contains("avx512bw") && flags.contains("avx512vl");
  const bool avx2 = flags.contains("avx2") && flags.contains("fma");
  const char* simd = avx512 ? "AVX-512" : avx2 ? "AVX2" : flags.contains("sse4_2") ? "SSE4" : "";
  const Int8Path path = avx512 && flags.contains("avx512_vnni") ? Int8Path::avx512_vnni
                        : avx2 && flags.contains("avx_vnni")    ? Int8Path::avx_vnni
                                                                : Int8Path::words;
#else
  const char* simd = flags.contains("asimd") ? "NEON" : "";
  const Int8Path path = flags.contains("i8mm")      ? Int8Path::neon_i8mm
                        : flags.contains("asimddp") ? Int8Path::neon_dot
                                                    : Int8Path::words;
#endif
  if (*simd != '\0') {
    EXPECT_STREQ(simd_name(), simd);
  }
  EXPECT_EQ(int8_path(), path) << int8_path_name(int8_path());
}

// Worst first.
int rank(const std::string& simd) {
  const std::vector<std::string> order = {"no SIMD", "SSE4", "NEON", "AVX2", "AVX-512"};
  return static_cast<int>(std::find(order.begin(), order.end(), simd) - order.begin());
}

TEST_F(Isa, CapsLeaveWhatTheySayOfWhatThereIs) {
  const std::string simd = simd_name();
  const Int8Path path = int8_path();
  const std::set<std::string> flags = flags_of_proc();
  struct {
    const char* cap;
    const char* simd;
    Int8Path path;
    const char* flag;  // of a CPU that has the path
  } const caps[] = {
#if HWY_ARCH_X86  // there is no less on Arm
    {"less", "no SIMD", Int8Path::words, ""},
    {"SSE4", "SSE4", Int8Path::words, ""},
    {"AVX2", "AVX2", Int8Path::words, ""},
    {"AVX2-VNNI", "AVX2", Int8Path::avx_vnni, "avx_vnni"},
    {"AVX512", "AVX-512", Int8Path::words, ""},
    {"AVX512-VNNI", "AVX-512", Int8Path::avx512_vnni, "avx512_vnni"},
#else
    {"NEON", "NEON", Int8Path::words, ""},
    {"NEON-DOT", "NEON", Int8Path::neon_dot, "asimddp"},
#endif
  };
  for (const auto& c : caps) {
    ASSERT_TRUE(cap_isa(c.cap)) << c.cap;
    EXPECT_EQ(rank(simd_name()), std::min(rank(c.simd), rank(simd))) << c.cap;
    const bool found =
        flags.empty() && c.path != Int8Path::words ? path >= c.path : flags.contains(c.flag);
    const bool has = found && rank(simd) >= rank(c.simd);
    EXPECT_EQ(int8_path(), has ? c.path : Int8Path::words) << c.cap;
  }
  ASSERT_TRUE(cap_isa(nullptr));
  EXPECT_EQ(simd_name(), simd);
  EXPECT_EQ(int8_path(), path);
}

TEST_F(Isa, TextNamesThePathWhereItIsOfNote) {
  const std::string simd = simd_name();
  const std::string path = int8_path_name(int8_path());
  EXPECT_EQ(isa_text(), int8_path() == Int8Path::words ? simd : simd + ", " + path);
  ASSERT_TRUE(cap_isa("less"));
  EXPECT_EQ(isa_text(), simd_name());
}

TEST_F(Isa, OnlySmallVectorsAreSlow) {
#if HWY_ARCH_X86
  ASSERT_TRUE(cap_isa("less"));
  EXPECT_TRUE(simd_is_slow());
  EXPECT_FALSE(cpu_suffices());
  ASSERT_TRUE(cap_isa(nullptr));
#endif
  EXPECT_TRUE(cpu_suffices());
  const std::string simd = simd_name();
  EXPECT_EQ(simd_is_slow(), simd != "AVX-512" && simd != "AVX2" && simd != "NEON");
#if HWY_ARCH_X86
  ASSERT_TRUE(cap_isa("SSE4"));
  EXPECT_TRUE(simd_is_slow());
#endif
}

TEST_F(Isa, UnknownNamesChangeNothing) {
  ASSERT_TRUE(cap_isa("less"));
  const std::string capped = computes();
  for (const char* name : {"", "avx2", "AVX", "AVX2 ", "SSE4-VNNI", "cuda"}) {
    EXPECT_FALSE(cap_isa(name)) << name;
    EXPECT_EQ(computes(), capped) << name;
  }
#if HWY_ARCH_X86
  EXPECT_FALSE(cap_isa("NEON"));
#else
  EXPECT_FALSE(cap_isa("AVX2"));
#endif
}

}  // namespace
}  // namespace blend::kernels
