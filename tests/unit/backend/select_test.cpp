// Which backend a name stands for, and what is said where it cannot be had.
#include "backend/select.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/module.h"
#include "cpu/isa.h"
#include "engine/runtime.h"

namespace blend {
namespace {

// The module that the test asks for, instead of the one that may be installed.
class BackendSelect : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = ThreadPool::create(1);
    ASSERT_TRUE(pool.is_ok());
    pool_ = std::move(pool.value());
  }
  void TearDown() override { unsetenv("BLEND_CUDA_MODULE"); }
  static std::vector<BackendNote> told_of(const BackendSpec& spec) {
    std::vector<BackendNote> told;
    const auto runtime = Runtime::create(1,
                                         Log(BLEND_LOG_WARNING,
                                             [&](const LogRecord& record) {
                                               told.push_back({record.code, record.message});
                                             }),
                                         spec);
    EXPECT_TRUE(runtime.is_ok());
    return told;
  }
  static void use_module(const char* path) { setenv("BLEND_CUDA_MODULE", path, 1); }

  std::unique_ptr<ThreadPool> pool_;
};

TEST_F(BackendSelect, Names) {
  const auto kind = [](const char* name) { return parse_backend(name)->kind; };
  EXPECT_EQ(kind(nullptr), BackendSpec::Kind::cpu);
  EXPECT_EQ(kind("cpu"), BackendSpec::Kind::cpu);
  EXPECT_EQ(kind("auto"), BackendSpec::Kind::automatic);
  EXPECT_EQ(kind("cuda"), BackendSpec::Kind::cuda);
  EXPECT_EQ(parse_backend("cuda")->device, 0);
  EXPECT_EQ(parse_backend("cuda:0")->device, 0);
  EXPECT_EQ(parse_backend("cuda:12")->device, 12);
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:1 ", "cuda:99999999999", "cpu:0"}) {
    const auto spec = parse_backend(name);
    EXPECT_EQ(spec.status().code(), BLEND_E_INVALID_ARGUMENT) << name;
    EXPECT_NE(spec.status().message().find(name), std::string::npos);
  }
}

TEST_F(BackendSelect, AModuleThatIsNotThere) {
  use_module("/nonexistent/libblend_cuda.so");
  const auto backend = make_backend({BackendSpec::Kind::cuda, 0}, *pool_, nullptr);
  EXPECT_EQ(backend.status().code(), BLEND_E_NO_DEVICE);
  EXPECT_NE(backend.status().message().find("/nonexistent/libblend_cuda.so"), std::string::npos);
  EXPECT_NE(backend.status().message().find("'cpu'"), std::string::npos) << "the way out";
}

TEST_F(BackendSelect, ALibraryThatIsNoModule) {
  use_module("libm.so.6");
  const auto backend = make_backend({BackendSpec::Kind::cuda, 0}, *pool_, nullptr);
  EXPECT_EQ(backend.status().code(), BLEND_E_NO_DEVICE);
  EXPECT_NE(backend.status().message().find(kCudaModuleEntry), std::string::npos);
}

TEST_F(BackendSelect, AutomaticFallsBackAndSaysWhy) {
  use_module("/nonexistent/libblend_cuda.so");
  std::vector<BackendNote> notes;
  const auto backend = make_backend({BackendSpec::Kind::automatic, 0}, *pool_, &notes);
  ASSERT_TRUE(backend.is_ok());
  EXPECT_EQ(backend.value()->name(), "cpu (" + kernels::isa_text() + ")");
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes[0].code, BLEND_E_NO_DEVICE);
  EXPECT_NE(notes[0].message.find("cannot be loaded"), std::string::npos);

  const auto told = told_of({BackendSpec::Kind::automatic, 0});
  ASSERT_EQ(told.size(), notes.size());
  EXPECT_EQ(told[0].code, BLEND_E_NO_DEVICE);
  EXPECT_NE(told[0].message.find(notes[0].message), std::string::npos);
}

TEST_F(BackendSelect, ACpuWithoutFastKernelsIsAnEvent) {
  const bool capped = kernels::cap_isa("SSE4");
  const auto told = told_of({});
  kernels::cap_isa(nullptr);
  const bool slow = kernels::simd_is_slow();
  const auto uncapped = told_of({});
  kernels::cap_isa(std::getenv("BLEND_TEST_ISA"));
  if (capped) {  // an architecture that has slower ones
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].code, BLEND_E_UNSUPPORTED);
    EXPECT_NE(told[0].message.find("SSE4"), std::string::npos) << told[0].message;
  }
  EXPECT_EQ(uncapped.size(), slow ? 1u : 0u);
}

TEST_F(BackendSelect, ACpuThatTheKernelsDoNotRunOnIsRefused) {
  ASSERT_TRUE(kernels::cap_isa("less"));
  const bool suffices = kernels::cpu_suffices();  // where there is nothing less
  const auto runtime = Runtime::create(1, {}, {BackendSpec::Kind::cpu, 0}, 0);
  kernels::cap_isa(std::getenv("BLEND_TEST_ISA"));
  ASSERT_EQ(runtime.is_ok(), suffices);
  if (suffices) return;
  EXPECT_EQ(runtime.status().code(), BLEND_E_UNSUPPORTED);
  EXPECT_NE(runtime.status().message().find("SSE4.2"), std::string::npos);
}

TEST_F(BackendSelect, OnlyADeviceOfItsOwnMemoryKeepsChunks) {
  const auto runtime = Runtime::create(1, {}, {BackendSpec::Kind::cpu, 0}, 1 << 20);
  ASSERT_TRUE(runtime.is_ok());
  EXPECT_EQ(runtime.value()->device_tier(), nullptr);
  EXPECT_EQ(runtime.value()->backend().device_memory(), nullptr);
}

}  // namespace
}  // namespace blend
