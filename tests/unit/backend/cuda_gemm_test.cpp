// Which algorithm a product is computed with, on an emulated cuBLASLt that has other algorithms for
// other row counts, none for aligned rows, or none at all.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "backend/cuda/gemm.h"
#include "formats/half.h"

namespace blend::cuda {
namespace {

class CudaGemm : public testing::Test {
 protected:
  static constexpr int64_t kIn = 80;

  void open(simt::Gemm how) {
    simt::Machine machine;
    machine.gemm = how;
    simt::set_machine(machine);
    auto opened = Device::open(0);
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    device_ = std::move(*opened);
    const DeviceScope scope(device_->context());
    auto gemm = Gemm::create(*device_);
    ASSERT_TRUE(gemm.is_ok()) << gemm.status().message();
    gemm_ = std::move(*gemm);
  }
  void close() {
    gemm_.reset();
    device_.reset();
  }
  void TearDown() override {
    close();
    simt::set_machine({});
  }
  static std::vector<uint16_t> numbers(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> all(n);
    for (uint16_t& v : all) v = f32_to_bf16(normal(random));
    return all;
  }
  Memory upload(const std::vector<uint16_t>& from) {
    auto memory = device_->allocate(from.size() * 2);
    EXPECT_TRUE(memory.is_ok());
    EXPECT_EQ(cudaMemcpyAsync(memory->as<void>(), from.data(), from.size() * 2,
                              cudaMemcpyHostToDevice, device_->compute()),
              cudaSuccess);
    return std::move(*memory);
  }
  // x w^T of seeded numbers, twice over where `accumulate`.
  std::vector<float> product(int64_t rows, int64_t out, bool accumulate = false) {
    const DeviceScope scope(device_->context());
    const Memory x = upload(numbers(static_cast<size_t>(rows * kIn), 1)),
                 w = upload(numbers(static_cast<size_t>(out * kIn), 2));
    std::vector<float> y(static_cast<size_t>(rows * out));
    auto memory = device_->allocate(y.size() * sizeof(float));
    EXPECT_TRUE(memory.is_ok());
    const GemmShape shape{rows, kIn, out, false};
    for (const bool add : {false, true}) {
      if (add && !accumulate) break;
      const Status run =
          gemm_->run(shape, x.as<uint16_t>(), w.as<uint16_t>(), memory->as<void>(), add);
      EXPECT_TRUE(run.is_ok()) << run.message();
    }
    EXPECT_EQ(cudaMemcpyAsync(y.data(), memory->as<void>(), y.size() * sizeof(float),
                              cudaMemcpyDeviceToHost, device_->compute()),
              cudaSuccess);
    return y;
  }
  // Expects the result of loops in double.
  static void expect_product(const std::vector<float>& y, int64_t rows, int64_t out, double times) {
    const auto x = numbers(static_cast<size_t>(rows * kIn), 1),
               w = numbers(static_cast<size_t>(out * kIn), 2);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < out; ++j) {
        double sum = 0;
        for (int64_t e = 0; e < kIn; ++e) {
          sum += double{bf16_to_f32(x[static_cast<size_t>(i * kIn + e)])} *
                 double{bf16_to_f32(w[static_cast<size_t>(j * kIn + e)])};
        }
        ASSERT_NEAR(y[static_cast<size_t>(i * out + j)], times * sum, 1e-3) << i << ", " << j;
      }
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Gemm> gemm_;
};

TEST_F(CudaGemm, TheSameCallGivesTheSameBitsWhateverCameBeforeIt) {
  open(simt::Gemm::by_rows);
  const std::vector<float> first = product(100, 24);
  close();
  open(simt::Gemm::by_rows);
  (void)product(71, 24);   // by another algorithm
  (void)product(100, 40);  // of the same rows
  EXPECT_EQ(product(100, 24), first);
  expect_product(first, 100, 24, 1);
}

TEST_F(CudaGemm, RowsOfAnOddLengthAreAskedForAtTheLeastAlignment) {
  open(simt::Gemm::unaligned);
  const uint64_t before = simt::kernel_launches();
  expect_product(product(3, 17), 3, 17, 1);
  EXPECT_EQ(simt::kernel_launches() - before, 1u);
  EXPECT_EQ(simt::gemm_calls(), 1u) << "by the library";
}

TEST_F(CudaGemm, WhatHasNoAlgorithmIsComputedByAPlainKernel) {
  open(simt::Gemm::none);
  for (const int64_t rows : {1, 16, 37}) {
    for (const int64_t out : {1, 16, 33}) expect_product(product(rows, out), rows, out, 1);
  }
  expect_product(product(5, 7, true), 5, 7, 2);
  EXPECT_EQ(simt::gemm_calls(), 0u);
}

}  // namespace
}  // namespace blend::cuda
