// The model of golden/fusion-random.json: random weights, the same bytes on every machine.
#pragma once

#include <string>

namespace blend::test {

// Writes the model to `path` and returns it.
std::string make_own_golden_model(const std::string& path);

}  // namespace blend::test
