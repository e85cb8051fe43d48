// The report's style sheet.
#pragma once

namespace blend_cli {

extern const char* const kEvalStyle;

}  // namespace blend_cli
