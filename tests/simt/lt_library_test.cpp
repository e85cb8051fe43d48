// Which cuBLASLt is opened, with libraries that have its names and nothing else.
#include "backend/cuda/lt_library.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace blend::cuda {
namespace {

namespace fs = std::filesystem;

class LtLibraryTest : public testing::Test {
 protected:
  // A copy under the name that it is looked for by, in folder/../nvidia/...
  void install(const char* fake, const std::string& to) const {
    const fs::path at = folder() + "/" + to;
    fs::create_directories(at.parent_path());
    fs::copy_file(fake, at);
  }
  std::string folder() const { return dir_.path() + "/blend"; }
  // Without those that the loader would find: this machine's libraries do not matter here.
  std::vector<std::string> beside() const {
    std::vector<std::string> all = lt_candidates(folder());
    std::erase_if(all, [](const std::string& file) { return file.find('/') == std::string::npos; });
    return all;
  }
  void SetUp() override { fs::create_directories(folder()); }

  test::TempDir dir_;
};

TEST_F(LtLibraryTest, ThirteenBeforeTwelveAndTheLoadersBeforePythons) {
  EXPECT_EQ(lt_candidates("/x/blend"),
            (std::vector<std::string>{
                "libcublasLt.so.13", "/x/blend/../nvidia/cu13/lib/libcublasLt.so.13",
                "libcublasLt.so.12", "/x/blend/../nvidia/cublas/lib/libcublasLt.so.12"}));
  EXPECT_EQ(lt_candidates(""), (std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12"}))
      << "no path that begins at the current folder or at the root";
}

TEST_F(LtLibraryTest, TwelveServesWhereThereIsNoThirteen) {
  install(FAKE_LT_12, "../nvidia/cublas/lib/libcublasLt.so.12");
  auto found = open_lt_library(beside());
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_STREQ(found->GetStatusString(CUBLAS_STATUS_SUCCESS), "fake 12");
  EXPECT_NE(found->Matmul, nullptr);
}

TEST_F(LtLibraryTest, ThirteenIsTakenWhereBothAre) {
  install(FAKE_LT_12, "../nvidia/cublas/lib/libcublasLt.so.12");
  install(FAKE_LT_13, "../nvidia/cu13/lib/libcublasLt.so.13");
  auto found = open_lt_library(beside());
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_STREQ(found->GetStatusString(CUBLAS_STATUS_SUCCESS), "fake 13");
}

TEST_F(LtLibraryTest, OneThatLacksAFunctionIsPassedOver) {
  install(FAKE_LT_PARTIAL, "../nvidia/cu13/lib/libcublasLt.so.13");
  const auto none = open_lt_library(beside());
  EXPECT_EQ(none.status().code(), BLEND_E_NO_DEVICE);
  EXPECT_NE(none.status().message().find("has no cublasLtMatmul"), std::string::npos)
      << none.status().message();
  EXPECT_NE(none.status().message().find("libcublasLt.so.12"), std::string::npos)
      << none.status().message();
  install(FAKE_LT_12, "../nvidia/cublas/lib/libcublasLt.so.12");
  auto found = open_lt_library(beside());
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_STREQ(found->GetStatusString(CUBLAS_STATUS_SUCCESS), "fake 12");
}

}  // namespace
}  // namespace blend::cuda
