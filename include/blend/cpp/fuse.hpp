// Options of a fuse.
#ifndef BLEND_CPP_FUSE_HPP
#define BLEND_CPP_FUSE_HPP

#include <functional>

#include "blend/cpp/detail.hpp"
#include "blend/experimental.h"
#include "blend/fuse.h"

namespace blendpp {

// The larger a row's score, the sooner it goes on; see blend_score_fn. All spans have one size.
using ScoreFn = std::function<bool(uint32_t layer, Span<const uint32_t> rows,
                                   Span<const float> deviation, Span<float> scores)>;

namespace detail {

inline int32_t on_score(void* user, uint32_t layer, const uint32_t* rows, const float* deviation,
                        size_t n, float* scores) noexcept {
  return static_cast<Guarded<ScoreFn>*>(user)->call(layer, Span<const uint32_t>(rows, n),
                                                    Span<const float>(deviation, n),
                                                    Span<float>(scores, n));
}

}  // namespace detail

using SelectionOptions = detail::Initialised<blend_selection_options, blend_selection_options_init>;

// The functions take the place of the C callback members, which stay null.
struct FuseOptions : detail::Initialised<blend_fuse_options, blend_fuse_options_init> {
  SelectionOptions selection;  // experimental; takes the place of the C member of that name
  ProgressFn on_progress;
  ScoreFn on_score;  // of BLEND_POLICY_CALLBACK
};

namespace detail {

// Before a C call takes them; copies of the options point to the selection of the first.
inline void point_to_selection(FuseOptions& options) {
  options.blend_fuse_options::selection = &options.selection;
}

}  // namespace detail

}  // namespace blendpp

#endif
