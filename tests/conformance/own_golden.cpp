#include "conformance/own_golden.h"

#include "support/random_model.h"

namespace blend::test {

std::string make_own_golden_model(const std::string& path) {
  RandomModelSpec spec;
  spec.n_layers = 4;
  spec.d_model = 48;
  spec.n_heads = 6;
  spec.n_kv_heads = 2;
  spec.head_dim = 16;  // q_dim is twice d_model: the two must not be confused
  spec.rotary_dim = 12;
  spec.d_ff = 80;
  spec.n_vocab = 300;
  spec.seed = 20250331;
  return write_random_model(spec, path);
}

}  // namespace blend::test
