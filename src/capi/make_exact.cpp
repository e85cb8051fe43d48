// Full prefill's K and V in the place of what was fused, and what was streamed meanwhile checked.
#include "fusion/result/make_exact.h"

#include "capi/answer.h"
#include "capi/error.h"
#include "capi/handles.h"

using blend::Status;

extern "C" {

int32_t blend_fusion_make_exact(blend_fusion* fusion, const int32_t* tokens, size_t n_tokens,
                                size_t* n_kept, const blend_cancel* cancel, blend_error** err) {
  if (n_kept != nullptr) *n_kept = 0;
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (n_tokens > 0) BLEND_REQUIRE(tokens);
    const blend::Sequence& sequence = *fusion->fused.sequence;
    const blend::Model& model = sequence.model();
    const std::span<const int32_t> ids(tokens, n_tokens);
    BLEND_RETURN_IF_ERROR(model.runtime().check_fork());
    BLEND_RETURN_IF_ERROR(model.check_length(n_tokens, "blend_fusion_make_exact"));
    BLEND_RETURN_IF_ERROR(model.check_tokens(ids, "blend_fusion_make_exact"));
    BLEND_RETURN_IF_ERROR(sequence.check_room(n_tokens));
    const blend::ThreadCap cap(fusion->n_threads);
    blend::capi::end_answer(*fusion);  // what was noted is the fused cache's
    size_t n = 0;
    Status status =
        blend::make_exact(fusion->fused, ids, blend::capi::make_watch(cancel, nullptr, nullptr), n);
    if (n_kept != nullptr) *n_kept = n;
    // The host has shown their text; what the last of them left open is continued.
    for (const int32_t token : ids.first(n)) fusion->text.push(model.tokenizer().piece(token, 0));
    return status;
  });
}

}  // extern "C"
