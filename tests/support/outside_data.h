// Weights and goldens that are too large for the repository, or not ours to put there.
#pragma once

#include <string>

namespace blend::test {

// The path of `name` below BLEND_DATA_DIR, as "models/stories260K.gguf"; "" where it is absent.
std::string outside_data(const std::string& name);

// Why a test without it is skipped.
inline constexpr const char* kNoOutsideData =
    "needs a file that is not in the repository: see BLEND_DATA_DIR in tests/CMakeLists.txt";

}  // namespace blend::test
