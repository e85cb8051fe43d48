// Shared steps on the CPU.
#include "unit/engine/shared_steps_test.h"

namespace blend::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, SharedStepsTest, testing::Values(StepsCase{"cpu", {}}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace blend::test
