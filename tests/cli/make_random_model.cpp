// make_random_model PATH [SEED]: a small random Llama for tests of programs.
#include <cstdio>
#include <cstdlib>

#include "support/random_model.h"

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: make_random_model PATH [SEED]\n");
    return 2;
  }
  blend::test::RandomModelSpec spec;
  if (argc == 3) spec.seed = std::strtoull(argv[2], nullptr, 10);
  blend::test::write_random_model(spec, argv[1]);
  return 0;
}
