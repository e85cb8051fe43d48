// The op tests for the CUDA backend on the emulated device: streams worked off late, early and at
// random, warps in ascending and descending order.
#include "backend/cuda/cuda_backend.h"

#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

BackendCase emulated(std::string name, simt::Schedule schedule, simt::Order order) {
  BackendCase c;
  c.name = std::move(name);
  c.n_threads = 2;
  c.tolerance_16 = 1e-2;
#if defined(__SANITIZE_ADDRESS__)
  c.rounds = 0.15;  // looks at every access; the numbers are the release build's matter
#else
  c.rounds = 0.4;
#endif
  c.make = [schedule, order](ThreadPool& pool) {
    simt::Machine machine;
    machine.schedule = schedule;
    simt::set_machine(machine);
    simt::set_order(order);
    return cuda::CudaBackend::create(0, pool);
  };
  return c;
}

const auto kCases =
    testing::Values(emulated("Late", simt::Schedule::late, simt::Order::ascending),
                    emulated("Early", simt::Schedule::early, simt::Order::descending),
                    emulated("Random", simt::Schedule::random, simt::Order::ascending));

INSTANTIATE_TEST_SUITE_P(Emulated, BackendOps, kCases,
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Emulated, BackendPacked, kCases,
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Emulated, BackendQkv, kCases,
                         [](const auto& tested) { return tested.param.name; });
INSTANTIATE_TEST_SUITE_P(Emulated, BackendMove, kCases,
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace blend::test
