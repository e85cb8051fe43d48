// What a fusion answers: its account and its logits; and what is appended to it or changed.
#include "capi/answer.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "fusion/result/edit.h"

using blend::Status;

extern "C" {

int32_t blend_fusion_fork(blend_fusion** out, blend_fusion* fusion, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(fusion);
    const blend::ThreadCap cap(fusion->n_threads);
    auto other = std::make_unique<blend_fusion>();
    BLEND_ASSIGN(other->fused, blend::fork(fusion->fused));
    other->chunk_prefix = fusion->chunk_prefix;
    other->n_threads = fusion->n_threads;
    other->text = fusion->text;
    other->answer = fusion->answer;
    other->checks = fusion->checks;
    *out = other.release();
    return Status::ok();
  });
}

int32_t blend_fusion_get_info(const blend_fusion* fusion, blend_fusion_info* info,
                              blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    const blend_fusion_report& r = fusion->fused.info;
    blend_fusion_info out{};
    out.flags = r.flags;
    out.policy = r.policy;
    out.n_layers = r.n_layers;
    out.ratio = r.ratio;
    out.n_rows = r.n_rows;
    out.n_rows_reused = r.n_rows_reused;
    out.n_rows_exact = r.n_rows_exact;
    out.n_rows_selected = r.n_rows_selected;
    out.n_hits = r.n_hits;
    out.n_misses = r.n_misses;
    out.ttft_ns = r.ttft_ns;
    out.wait_ns = r.wait_ns;
    out.bytes_loaded = r.bytes_loaded;
    return blend::capi::write_struct(info, out);
  });
}

int32_t blend_fusion_get_report(const blend_fusion* fusion, blend_fusion_report* report,
                                blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    return blend::capi::write_struct(report, fusion->fused.info);
  });
}

int32_t blend_fusion_get_layer(const blend_fusion* fusion, uint32_t layer, blend_layer_info* info,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (layer >= fusion->fused.layers.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "layer %u: the model has %zu", layer,
                               fusion->fused.layers.size());
    }
    return blend::capi::write_struct(info, fusion->fused.layers[layer]);
  });
}

int32_t blend_fusion_get_segment(const blend_fusion* fusion, size_t segment,
                                 blend_segment_info* info, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (segment >= fusion->fused.segments.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "segment %zu: the prompt has %zu", segment,
                               fusion->fused.segments.size());
    }
    return blend::capi::write_struct(info, fusion->fused.segments[segment]);
  });
}

int32_t blend_fusion_get_selected(const blend_fusion* fusion, const uint32_t** rows, size_t* n,
                                  blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(rows);
    BLEND_REQUIRE(n);
    *rows = fusion->fused.selected.data();
    *n = fusion->fused.selected.size();
    return Status::ok();
  });
}

int32_t blend_fusion_get_deviation(const blend_fusion* fusion, const float** deviation,
                                   size_t* n_rows, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(deviation);
    BLEND_REQUIRE(n_rows);
    *deviation = fusion->fused.deviation.data();
    *n_rows = fusion->fused.deviation.size();
    return Status::ok();
  });
}

int32_t blend_fusion_get_logits(const blend_fusion* fusion, const float** logits, size_t* n_vocab,
                                blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(logits);
    BLEND_REQUIRE(n_vocab);
    *logits = fusion->fused.sequence->logits().data();
    *n_vocab = fusion->fused.sequence->logits().size();
    return Status::ok();
  });
}

int32_t blend_fusion_get_tokens(const blend_fusion* fusion, const int32_t** tokens, size_t* n_rows,
                                blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    BLEND_REQUIRE(tokens);
    BLEND_REQUIRE(n_rows);
    *tokens = fusion->fused.sequence->tokens().data();
    *n_rows = fusion->fused.sequence->tokens().size();
    return Status::ok();
  });
}

int32_t blend_fusion_decode(blend_fusion* fusion, const int32_t* tokens, size_t n_tokens,
                            const blend_cancel* cancel, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (n_tokens > 0) BLEND_REQUIRE(tokens);
    blend::Sequence& sequence = *fusion->fused.sequence;
    const std::span<const int32_t> ids(tokens, n_tokens);
    BLEND_RETURN_IF_ERROR(sequence.model().check_length(n_tokens, "blend_fusion_decode"));
    BLEND_RETURN_IF_ERROR(sequence.model().check_tokens(ids, "blend_fusion_decode"));
    const blend::ThreadCap cap(fusion->n_threads);
    if (!ids.empty()) blend::capi::note_answer(*fusion);
    // Several at once are the host's text: the answer ends before them.
    if (ids.size() > 1) blend::capi::end_answer(*fusion);
    BLEND_RETURN_IF_ERROR(sequence.append(ids, blend::capi::make_watch(cancel, nullptr, nullptr)));
    // The host's tokens come between: what was left open is not continued by what follows.
    if (!ids.empty()) fusion->text = {};
    return Status::ok();
  });
}

int32_t blend_fusion_replace(blend_fusion* fusion, uint64_t first_row, uint64_t n_rows,
                             const int32_t* tokens, size_t n_tokens, const blend_cancel* cancel,
                             blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    if (n_tokens > 0) BLEND_REQUIRE(tokens);
    const blend::Model& model = fusion->fused.sequence->model();
    const std::span<const int32_t> ids(tokens, n_tokens);
    BLEND_RETURN_IF_ERROR(model.check_length(n_tokens, "blend_fusion_replace"));
    BLEND_RETURN_IF_ERROR(model.check_tokens(ids, "blend_fusion_replace"));
    const blend::ThreadCap cap(fusion->n_threads);
    if (n_rows > 0 || n_tokens > 0) blend::capi::end_answer(*fusion);
    BLEND_RETURN_IF_ERROR(blend::edit(fusion->fused, first_row, n_rows, ids,
                                      blend::capi::make_watch(cancel, nullptr, nullptr)));
    if (n_rows > 0 || n_tokens > 0) fusion->text = {};  // as in blend_fusion_decode
    return Status::ok();
  });
}

int32_t blend_fusion_erase(blend_fusion* fusion, uint64_t first_row, uint64_t n_rows,
                           const blend_cancel* cancel, blend_error** err) {
  return blend_fusion_replace(fusion, first_row, n_rows, nullptr, 0, cancel, err);
}

}  // extern "C"
