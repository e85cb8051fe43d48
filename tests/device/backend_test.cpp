// The op tests for the CUDA backend on the device that BLEND_TEST_BACKEND names ("cuda" by
// default).
#include <cstdlib>

#include "backend/select.h"
#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

BackendCase device() {
  BackendCase c;
  c.name = "Device";
  c.n_threads = 4;
  c.tolerance = 2e-5;
  // Q, K and V are rounded to bf16: 1.1e-2 at the worst of all rounds against operands that are
  // not, 5e-3 against those that are.
  c.tolerance_16 = 1.6e-2;
  c.make = [](ThreadPool& pool) -> Result<std::unique_ptr<Backend>> {
    const char* const name = std::getenv("BLEND_TEST_BACKEND");
    BLEND_ASSIGN(const BackendSpec spec, parse_backend(name == nullptr ? "cuda" : name));
    return make_backend(spec, pool, nullptr);
  };
  return c;
}

INSTANTIATE_TEST_SUITE_P(Cuda, BackendOps, testing::Values(device()),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Cuda, BackendPacked, testing::Values(device()),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Cuda, BackendQkv, testing::Values(device()),
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Cuda, BackendMove, testing::Values(device()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace blend::test
