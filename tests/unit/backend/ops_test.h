// The operations of a Backend against plain loops in double precision, written once for every
// backend: instantiate BackendOps with a factory.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, BackendOps, testing::Values(BackendCase{"cpu2", 2, make}), ...);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "support/slots.h"

namespace blend::test {

struct BackendCase {
  std::string name;
  uint32_t n_threads = 1;
  // Relative to the largest element of a result, where all is f32.
  double tolerance = 1e-5;
  // The same where a backend of 16-bit weights, operands or caches rounds to them.
  double tolerance_16 = 1e-5;
  double rounds = 1;  // of the usual number: emulation is slow
  std::function<Result<std::unique_ptr<Backend>>(ThreadPool&)> make;
};

class BackendOps : public testing::TestWithParam<BackendCase> {
 protected:
  // A tensor and the memory it views.
  struct Owned {
    std::unique_ptr<DeviceBuffer> buffer;
    Tensor tensor;
  };

  void SetUp() override;

  size_t number(size_t low, size_t high);
  std::vector<float> normal(size_t n, float scale = 1.0f);
  Owned make_tensor(const std::vector<float>& values, int64_t rows, int64_t cols);
  Owned make_empty(int64_t rows, int64_t cols);
  std::vector<float> host(const Tensor& t);
  int rounds(int usual) const {
#ifdef BLEND_TEST_EMULATED
    usual /= 5;
#endif
    return std::max(4, static_cast<int>(usual * GetParam().rounds));
  }
  // n distinct positions below limit, ascending.
  std::vector<uint32_t> positions(size_t n, size_t limit);
  void expect_close(const std::vector<float>& got, const std::vector<double>& want) {
    expect_within(got, want, GetParam().tolerance);
  }
  // Tolerance if a backend may have rounded intermediate values to 16 bits.
  void expect_near(const std::vector<float>& got, const std::vector<double>& want) {
    expect_within(got, want, GetParam().tolerance_16);
  }
  static void expect_within(const std::vector<float>& got, const std::vector<double>& want,
                            double tolerance);

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::mt19937 rng_{11};
};

// Moves of rows in and between KV caches; instantiated like BackendOps.
class BackendMove : public BackendOps {
 protected:
  // A model shape with every kind of RoPE in turn, and room for some rows.
  struct Shape {
    ModelConfig config;
    uint32_t capacity = 0;
    size_t row_floats() const { return size_t{2} * config.kv_dim(); }
  };
  Shape shape(int round);
  // n rows of random K | V.
  Owned make_rows(const Shape& shape, uint32_t n);
  // Writes rows at the positions from `first` on.
  void write(KvCache& cache, uint32_t layer, const RopeTable& rope, Tensor rows, uint32_t first);
  // What two rows, the last and one in the middle, see of slots 0 .. filled-1. q: [2, q_dim].
  std::vector<float> attend(const Shape& shape, const KvCache& cache, uint32_t layer,
                            const RopeTable& rope, const std::vector<float>& q, uint32_t filled);
};

// Packed rows (StoredRun::packed); instantiated like BackendOps, for backends that decode
// them.
class BackendPacked : public BackendOps {};

// Q, K and V by one product; instantiated like BackendOps, for backends with PackedQkv.
class BackendQkv : public BackendOps {};

// A weight as a model file would hold it: encoded values, and what they decode to.
struct StoredTensor {
  TensorView view;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};
std::unique_ptr<StoredTensor> make_stored(const std::string& name, std::vector<float> values,
                                          std::vector<int64_t> shape, DType dtype);

inline constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};

}  // namespace blend::test
