// The op tests for the CPU backend: one thread, two, and more than this machine may have; and on
// every SIMD target.
#include <hwy/targets.h>

#include "cpu/simd.h"
#include "unit/backend_ops_test.h"

namespace blend::test {
namespace {

BackendCase cpu(std::string name, uint32_t n_threads, int64_t target) {
  BackendCase c;
  c.name = std::move(name);
  c.n_threads = n_threads;
  c.make = [target](ThreadPool& pool) {
    hwy::SetSupportedTargetsForTest(target);  // 0: what the machine has
    if (target != 0) {
      hwy::GetChosenTarget().Update(target);
    } else {
      hwy::GetChosenTarget().DeInit();
    }
    return make_cpu_backend(pool);
  };
  return c;
}

std::vector<BackendCase> cases() {
  std::vector<BackendCase> all = {cpu("Threads1", 1, 0), cpu("Threads2", 2, 0),
                                  cpu("Threads5", 5, 0)};
  for (int64_t rest = hwy::SupportedTargets() & HWY_ATTAINABLE_TARGETS; rest != 0;
       rest &= rest - 1) {
    const int64_t target = rest & -rest;
    all.push_back(cpu(hwy::TargetName(target), 2, target));
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendOps, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(Cpu, BackendMove, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace blend::test
