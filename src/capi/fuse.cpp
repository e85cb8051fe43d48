#include "fusion/run/fuse.h"

#include <algorithm>
#include <string>

#include "capi/answer.h"
#include "capi/error.h"
#include "capi/fuse_call.h"
#include "capi/handles.h"
#include "capi/log.h"
#include "capi/structs.h"
#include "model/config.h"

using blend::Result;
using blend::Status;
using blend::capi::FuseCall;

namespace {

// A request that makes no sense is its own failure; structs of different sizes are the batch's.
Result<std::vector<Result<FuseCall>>> read_requests(const blend::Model& model,
                                                    const blend_store* store,
                                                    const blend_fuse_request* requests, size_t n) {
  std::vector<Result<FuseCall>> out;
  BLEND_RETURN_IF_ERROR(blend::capi::check_elements(requests, n, "request"));
  for (size_t i = 0; i < n; ++i) {
    blend_fuse_request copy{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(blend::capi::element(requests, i), copy));
    out.push_back(
        blend::capi::read_fuse_call(model, store, copy.segments, copy.n_segments, copy.options));
  }
  return out;
}

// They are computed in step, so as many as the one with most may have.
uint32_t threads_of(std::vector<Result<FuseCall>>& calls) {
  uint32_t most = 0;
  for (Result<FuseCall>& call : calls) {
    if (!call.is_ok()) continue;
    if (call->n_threads == 0) return 0;
    most = std::max(most, call->n_threads);
  }
  return most;
}

// Fuses those that could be read. out, errors: [n], all NULL; errors may be NULL.
Result<int32_t> fuse_calls(const std::shared_ptr<const blend::Model>& model, const blend_store* in,
                           std::vector<Result<FuseCall>>& calls, blend_fusion** out,
                           blend_error** errors) {
  std::vector<blend::FuseJob> jobs;
  std::vector<size_t> places;  // of the jobs among the calls
  std::vector<Status> failed(calls.size());
  blend::StoreAccess store;
  for (size_t i = 0; i < calls.size(); ++i) {
    failed[i] = calls[i].status();
    if (!failed[i].is_ok()) continue;
    store = calls[i]->store;  // of all of them
    places.push_back(i);
    jobs.push_back(std::move(calls[i]->job));
  }
  // All or nothing: what cannot be fused is not worth the others' time.
  const auto first_failure = [&]() -> Status {
    for (size_t i = 0; i < failed.size(); ++i) {
      if (!failed[i].is_ok()) return failed[i].with_context("request " + std::to_string(i));
    }
    return Status::ok();
  };
  if (errors == nullptr) BLEND_RETURN_IF_ERROR(first_failure());

  const blend::ThreadCap cap(threads_of(calls));
  std::vector<Result<blend::Fused>> fused = blend::fuse_batch(model, store, jobs);
  std::vector<std::unique_ptr<blend_fusion>> handles(calls.size());
  for (size_t n = 0; n < fused.size(); ++n) {
    const size_t i = places[n];
    failed[i] = fused[n].status();
    if (!failed[i].is_ok()) continue;
    handles[i] = std::make_unique<blend_fusion>();
    handles[i]->fused = std::move(*fused[n]);
    handles[i]->n_threads = calls[i]->n_threads;
    blend::capi::tell_fused(model->runtime().log(), handles[i]->fused);
    blend::capi::begin_answer(*handles[i], in);
    handles[i]->chunk_prefix = std::move(jobs[n].request.options.chunk_prefix);
  }
  const Status first = first_failure();
  if (errors == nullptr) BLEND_RETURN_IF_ERROR(first);
  // Nothing fails from here on.
  for (size_t i = 0; i < calls.size(); ++i) {
    out[i] = handles[i].release();
    if (!failed[i].is_ok()) errors[i] = blend::capi::make_blend_error(failed[i]);
  }
  return first.is_ok() ? BLEND_OK : BLEND_PARTIAL;
}

}  // namespace

extern "C" {

int32_t blend_model_default_check_layers(const blend_model* model, double ratio,
                                         uint32_t first_layer, blend_check_layer* out, size_t* n,
                                         blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(out);
    BLEND_REQUIRE(n);
    const uint32_t n_layers = model->description->config().n_kept();
    if (*n == 0) {
      return Status{BLEND_E_INVALID_ARGUMENT, "n must say how many check layers are wanted"};
    }
    const auto wanted = static_cast<uint32_t>(std::min<size_t>(*n, n_layers));
    const blend::CheckLayer first{first_layer, ratio};
    BLEND_RETURN_IF_ERROR(blend::check_schedule({&first, 1}, 0, n_layers));
    const blend::Schedule schedule = blend::falling_schedule(ratio, first_layer, wanted, n_layers);
    // A layer that does not attend is replaced by the next one that does. If two are replaced by
    // the same layer, the later ratio holds.
    const blend::RowMixer& mixer = model->description->config().mixer;
    size_t n_out = 0;
    for (const blend::CheckLayer& check : schedule) {
      uint32_t layer = check.layer;
      if (layer > 0 && mixer.any()) {
        layer = blend::dependent_layer(mixer, n_layers, layer);
        if (layer == n_layers) continue;
      }
      if (n_out > 0 && out[n_out - 1].layer == layer) --n_out;
      out[n_out++] = {layer, check.ratio};
    }
    if (n_out == 0) {
      return blend::make_error(
          BLEND_E_INVALID_ARGUMENT,
          "no layer of this model from %u on attends and knows of rows far away", first_layer);
    }
    *n = n_out;
    return Status::ok();
  });
}

int32_t blend_fuse(blend_fusion** out, const blend_model* model, const blend_store* store,
                   const blend_segment* segments, size_t n_segments,
                   const blend_fuse_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    BLEND_ASSIGN(const auto loaded, model->fusible());
    BLEND_ASSIGN(const FuseCall call,
                 blend::capi::read_fuse_call(*loaded, store, segments, n_segments, options));
    const blend::ThreadCap cap(call.n_threads);
    auto handle = std::make_unique<blend_fusion>();
    handle->n_threads = call.n_threads;
    BLEND_ASSIGN(handle->fused, blend::fuse(loaded, call.store, call.job));
    blend::capi::tell_fused(loaded->runtime().log(), handle->fused);
    blend::capi::begin_answer(*handle, store);
    handle->chunk_prefix = call.job.request.options.chunk_prefix;
    *out = handle.release();
    return Status::ok();
  });
}

int32_t blend_fuse_batch(blend_fusion** out, blend_error** errors, const blend_model* model,
                         const blend_store* store, const blend_fuse_request* requests, size_t n,
                         blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(out);
    std::fill_n(out, n, nullptr);
    if (errors != nullptr) std::fill_n(errors, n, nullptr);
    BLEND_REQUIRE(model);
    if (n > 0) BLEND_REQUIRE(requests);
    BLEND_ASSIGN(const auto loaded, model->fusible());
    BLEND_ASSIGN(std::vector<Result<FuseCall>> calls, read_requests(*loaded, store, requests, n));
    return fuse_calls(loaded, store, calls, out, errors);
  });
}

int32_t blend_fusion_extend(blend_fusion* fusion, const blend_store* store,
                            const blend_segment* segments, size_t n_segments,
                            const blend_fuse_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    const blend::Model& model = fusion->fused.sequence->model();
    BLEND_RETURN_IF_ERROR(model.runtime().check_fork());
    BLEND_ASSIGN(const FuseCall call,
                 blend::capi::read_fuse_call(model, store, segments, n_segments, options,
                                             {.chunk_prefix = &fusion->chunk_prefix}));
    const uint32_t n_threads = call.n_threads != 0 ? call.n_threads : fusion->n_threads;
    const blend::ThreadCap cap(n_threads);
    blend::capi::end_answer(*fusion);  // an answer to what follows is not its prompt's alone
    BLEND_RETURN_IF_ERROR(blend::extend(fusion->fused, call.store, call.job));
    blend::capi::tell_fused(model.runtime().log(), fusion->fused);
    fusion->n_threads = n_threads;
    fusion->text = {};  // as in blend_fusion_decode
    return Status::ok();
  });
}

void blend_fusion_close(blend_fusion* fusion) {
  if (fusion != nullptr) blend::capi::end_answer(*fusion);
  delete fusion;
}

}  // extern "C"
