// Finds calls of functions in answers.
#pragma once

#include <string>

#include "blend/blend.hpp"
#include "tools.h"

namespace blend_cli::serve {

// For one answer that may call `tools`, by the chat template in use ("": the model's own).
blendpp::CallReader call_reader(const blendpp::Model& model, const std::string& template_source,
                                const Tools& tools);

}  // namespace blend_cli::serve
