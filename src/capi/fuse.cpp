#include "fusion/fuse.h"

#include <algorithm>
#include <string>

#include "capi/error.h"
#include "capi/fuse_request.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Result;
using blend::Status;
using blend::capi::FuseRequest;

namespace {

// The array's stride is the struct_size of the host's header. A request that makes no sense is its
// own failure; structs of different sizes are the batch's.
Result<std::vector<Result<FuseRequest>>> read_requests(const blend::Model& model,
                                                       const blend_store* store,
                                                       const blend_fuse_request* requests,
                                                       size_t n) {
  std::vector<Result<FuseRequest>> out;
  const auto* at = reinterpret_cast<const unsigned char*>(requests);
  for (size_t i = 0; i < n; ++i, at += requests->struct_size) {
    const auto* in = reinterpret_cast<const blend_fuse_request*>(at);
    if (in->struct_size != requests->struct_size) {
      return blend::make_error(BLEND_E_INVALID_STRUCT,
                               "request %zu: struct_size differs from the first request's; call "
                               "blend_fuse_request_init on each",
                               i);
    }
    blend_fuse_request copy{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(in, copy));
    BLEND_RETURN_IF_ERROR(blend::capi::check_reserved("reserved0", copy.reserved0));
    auto request =
        blend::capi::read_fuse_request(model, store, copy.segments, copy.n_segments, copy.options);
    if (request.is_ok()) {
      if (Status s = blend::capi::use_profile(model, *request); !s.is_ok()) request = std::move(s);
    }
    out.push_back(std::move(request));
  }
  return out;
}

// They are computed in step, so as many as the one with most may have.
uint32_t threads_of(std::vector<Result<FuseRequest>>& requests) {
  uint32_t most = 0;
  for (Result<FuseRequest>& request : requests) {
    if (!request.is_ok()) continue;
    if (request->n_threads == 0) return 0;
    most = std::max(most, request->n_threads);
  }
  return most;
}

// Fuses those that could be read. out, errors: [n], all NULL; errors may be NULL.
Result<int32_t> fuse_requests(const std::shared_ptr<const blend::Model>& model,
                              std::vector<Result<FuseRequest>>& requests, blend_fusion** out,
                              blend_error** errors) {
  std::vector<blend::FuseJob> jobs;
  std::vector<size_t> places;  // of the jobs among the requests
  std::vector<Status> failed(requests.size());
  blend::StoreAccess store;
  for (size_t i = 0; i < requests.size(); ++i) {
    failed[i] = requests[i].status();
    if (!failed[i].is_ok()) continue;
    store = requests[i]->store;  // of all of them
    places.push_back(i);
    jobs.push_back({requests[i]->segments, requests[i]->options, requests[i]->watch});
  }
  // All or nothing: what cannot be fused is not worth the others' time.
  const auto first_failure = [&]() -> Status {
    for (size_t i = 0; i < failed.size(); ++i) {
      if (!failed[i].is_ok()) return failed[i].with_context("request " + std::to_string(i));
    }
    return Status::ok();
  };
  if (errors == nullptr) BLEND_RETURN_IF_ERROR(first_failure());

  const blend::ThreadCap cap(threads_of(requests));
  std::vector<Result<blend::Fused>> fused = blend::fuse_batch(model, store, jobs);
  std::vector<std::unique_ptr<blend_fusion>> handles(requests.size());
  for (size_t job = 0; job < jobs.size(); ++job) {
    const size_t i = places[job];
    failed[i] = fused[job].status();
    if (!failed[i].is_ok()) continue;
    handles[i] = std::make_unique<blend_fusion>();
    handles[i]->fused = std::move(*fused[job]);
    handles[i]->n_threads = requests[i]->n_threads;
    blend::capi::judge(*requests[i], handles[i]->fused.info);
  }
  const Status first = first_failure();
  if (errors == nullptr) BLEND_RETURN_IF_ERROR(first);
  // Nothing fails from here on.
  for (size_t i = 0; i < requests.size(); ++i) {
    out[i] = handles[i].release();
    if (!failed[i].is_ok()) errors[i] = blend::capi::make_blend_error(failed[i]);
  }
  return first.is_ok() ? BLEND_OK : BLEND_PARTIAL;
}

}  // namespace

extern "C" {

int32_t blend_falling_check_layers(const blend_model* model, double ratio, uint32_t first_layer,
                                   blend_check_layer* out, size_t* n, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(model);
    BLEND_REQUIRE(out);
    BLEND_REQUIRE(n);
    const uint32_t n_layers = model->description->config().n_layers;
    if (*n == 0) {
      return Status{BLEND_E_INVALID_ARGUMENT, "n must say how many check layers are wanted"};
    }
    const auto wanted = static_cast<uint32_t>(std::min<size_t>(*n, n_layers));
    const blend::Check first{first_layer, ratio};
    BLEND_RETURN_IF_ERROR(blend::check_schedule({&first, 1}, 0, n_layers));
    const blend::Schedule schedule = blend::falling_schedule(ratio, first_layer, wanted, n_layers);
    for (size_t i = 0; i < schedule.size(); ++i) {
      out[i] = {schedule[i].layer, 0, schedule[i].ratio};
    }
    *n = schedule.size();
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
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(FuseRequest request,
                 blend::capi::read_fuse_request(*loaded, store, segments, n_segments, options));
    BLEND_RETURN_IF_ERROR(blend::capi::use_profile(*loaded, request));
    const blend::ThreadCap cap(request.n_threads);
    auto handle = std::make_unique<blend_fusion>();
    handle->n_threads = request.n_threads;
    BLEND_ASSIGN(handle->fused, blend::fuse(loaded, request.store, request.segments,
                                            request.options, request.watch));
    blend::capi::judge(request, handle->fused.info);
    *out = handle.release();
    return Status::ok();
  });
}

int32_t blend_fuse_request_init(blend_fuse_request* request, size_t struct_size) {
  blend_fuse_request defaults{};
  defaults.struct_size = sizeof defaults;
  return blend::capi::init_struct(request, struct_size, defaults);
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
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(std::vector<Result<FuseRequest>> read, read_requests(*loaded, store, requests, n));
    return fuse_requests(loaded, read, out, errors);
  });
}

int32_t blend_fusion_extend(blend_fusion* fusion, const blend_store* store,
                            const blend_segment* segments, size_t n_segments,
                            const blend_fuse_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(fusion);
    const blend::Model& model = fusion->fused.sequence->model();
    BLEND_ASSIGN(FuseRequest request,
                 blend::capi::read_fuse_request(model, store, segments, n_segments, options));
    BLEND_RETURN_IF_ERROR(blend::capi::use_profile(model, request));
    if (request.n_threads == 0) request.n_threads = fusion->n_threads;
    const blend::ThreadCap cap(request.n_threads);
    BLEND_RETURN_IF_ERROR(blend::extend(fusion->fused, request.store, request.segments,
                                        request.options, request.watch));
    blend::capi::judge(request, fusion->fused.info);
    fusion->n_threads = request.n_threads;
    fusion->text = {};  // as in blend_decode
    return Status::ok();
  });
}

void blend_fusion_close(blend_fusion* fusion) { delete fusion; }

}  // extern "C"
