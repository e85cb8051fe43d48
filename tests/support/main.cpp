// Runs a program's tests, as a lesser machine where the environment variable BLEND_TEST_ISA names
// one of cpu/isa.h. Before gtest lists the tests, which may be one for each instruction set.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "cpu/isa.h"

int main(int argc, char** argv) {
  const char* const isa = std::getenv("BLEND_TEST_ISA");
  if (isa != nullptr && !blend::kernels::cap_isa(isa)) {
    std::fprintf(stderr, "BLEND_TEST_ISA=%s: no such instruction set here\n", isa);
    return 2;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
