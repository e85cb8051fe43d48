// An answer that is shown at once and corrected a moment later: what blend_fusion_make_exact is
// for.
#pragma once

#include <blend/blend.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace blend_cli {

struct ExactAnswer {
  std::string text;  // full prefill's answer
  blendpp::Generated generated;
  size_t n_shown = 0;       // tokens shown before full prefill was done
  size_t n_taken_back = 0;  // of these
};

struct ExactCalls {
  std::function<void(std::string_view text)> show;
  // The text shown is wrong from here on: `right` is the part that stays, and the rest follows.
  std::function<void(std::string_view right)> correct;
};

// Shows what a fork of `fusion` generates by `options` while full prefill of the same prompt runs
// beside it on another thread, checks it, and goes on from `fusion`, which is exact then. Greedy
// only: no temperature, penalties, bias or stop texts.
ExactAnswer answer_exactly(blendpp::Fusion& fusion, const blendpp::GenerateOptions& options,
                           const ExactCalls& calls);

}  // namespace blend_cli
