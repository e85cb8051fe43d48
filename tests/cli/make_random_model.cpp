// make_random_model PATH [SEED [slow]]: a small random Llama for tests of programs. A slow one
// generates for seconds, for tests of what happens meanwhile.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/random_model.h"

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4 || (argc == 4 && argv[3] != std::string_view("slow"))) {
    std::fprintf(stderr, "usage: make_random_model PATH [SEED [slow]]\n");
    return 2;
  }
  blend::test::RandomModelSpec spec;
  if (argc >= 3) spec.seed = std::strtoull(argv[2], nullptr, 10);
  if (argc == 4) {
    spec.context = 4096;
    spec.d_model = 512;
    spec.d_ff = 1280;
  }
  blend::test::write_random_model(spec, argv[1]);
  return 0;
}
