// Looking after a store: repair, copies, files of chunks, metrics.
#include <cstring>

#include "capi/chunk_ids.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "store/metrics.h"
#include "store/transfer.h"

using blend::Result;
using blend::Status;

namespace {

struct TransferRequest {
  bool replace = false;
  std::vector<blend::Sha256> ids;
  blend::Watch watch;
};

Result<TransferRequest> read_transfer(const blend_transfer_options* options) {
  blend_transfer_options o{};
  BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
  if ((o.flags & ~BLEND_IMPORT_REPLACE) != 0) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_IMPORT_ bits",
                             o.flags);
  }
  if ((o.ids == nullptr) != (o.n_ids == 0)) {
    return Status{BLEND_E_INVALID_ARGUMENT, "ids and n_ids must both be given, or neither"};
  }
  TransferRequest request;
  request.replace = (o.flags & BLEND_IMPORT_REPLACE) != 0;
  for (size_t i = 0; i < o.n_ids; ++i) request.ids.push_back(blend::capi::digest_of(o.ids[i]));
  request.watch = blend::capi::make_watch(o.cancel, o.progress, o.progress_user);
  return request;
}

Result<std::vector<blend::Metric>> metrics_of(const blend_store& store) {
  BLEND_ASSIGN(const blend::StoreStat stat, store.store->stat());
  std::vector<blend::Metric> metrics = blend::store_metrics(stat, store.reads->per_second());
  const size_t prefills = store.later == nullptr ? 0 : store.later->n_left();
  metrics.push_back({"blend_store_prefills_left", "",
                     "Deferred prefills of chunks that fuses missed", false,
                     static_cast<double>(prefills)});
  const blend::FidelityChecks::Counts checks = store.checks->counts();
  metrics.push_back({"blend_store_checks_left", "",
                     "Answers that wait to be compared with full prefill", false,
                     static_cast<double>(checks.queued)});
  metrics.push_back({"blend_store_checks_total", "",
                     "Answers compared with full prefill through this handle", true,
                     static_cast<double>(checks.done)});
  metrics.push_back({"blend_store_checks_dropped_total", "",
                     "Answers that were to be compared and were not, for too many waited", true,
                     static_cast<double>(checks.dropped)});
  return metrics;
}

}  // namespace

extern "C" {

int32_t blend_transfer_options_init(blend_transfer_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_store_repair(const blend_store* store, blend_chunk_fn fn, void* user,
                           uint64_t* n_removed, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    if (n_removed != nullptr) *n_removed = 0;
    BLEND_REQUIRE(store);
    uint64_t n = 0;
    Status status = store->store->repair(
        [&](const blend::ChunkMeta& meta, const std::string& problem) -> int32_t {
          if (fn == nullptr) return 0;
          const blend_chunk_info info = blend::capi::describe_stored(*store->store, meta);
          return fn(user, &info, problem.c_str());
        },
        &n);
    if (n_removed != nullptr) *n_removed = n;
    return status;
  });
}

int32_t blend_store_copy(const blend_store* store, const char* path, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(path);
    return store->store->copy_to(path);
  });
}

int32_t blend_store_compact(const char* path, uint64_t* bytes_before, uint64_t* bytes_after,
                            blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(path);
    uint64_t before = 0;
    uint64_t after = 0;
    BLEND_RETURN_IF_ERROR(blend::compact_store(path, &before, &after));
    if (bytes_before != nullptr) *bytes_before = before;
    if (bytes_after != nullptr) *bytes_after = after;
    return Status::ok();
  });
}

int32_t blend_store_export(const blend_store* store, const char* path,
                           const blend_transfer_options* options, uint64_t* n_chunks,
                           blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    if (n_chunks != nullptr) *n_chunks = 0;
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(path);
    BLEND_ASSIGN(const TransferRequest request, read_transfer(options));
    BLEND_ASSIGN(const blend::Transfer done,
                 blend::export_chunks(*store->store, request.ids, path, request.watch));
    if (n_chunks != nullptr) *n_chunks = done.n_chunks;
    return Status::ok();
  });
}

int32_t blend_store_import(const blend_store* store, const char* path,
                           const blend_transfer_options* options, uint64_t* n_chunks,
                           blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    if (n_chunks != nullptr) *n_chunks = 0;
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(path);
    BLEND_ASSIGN(const TransferRequest request, read_transfer(options));
    if (!request.ids.empty()) {
      return {BLEND_E_INVALID_ARGUMENT, "ids choose what is exported; an import takes all"};
    }
    blend::Transfer done;
    Status status =
        blend::import_chunks(*store->store, path, request.replace, request.watch, &done);
    if (n_chunks != nullptr) *n_chunks = done.n_chunks;
    return status;
  });
}

int32_t blend_store_list_metrics(const blend_store* store, blend_metric_fn fn, void* user,
                                 blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(fn);
    BLEND_ASSIGN(const auto metrics, metrics_of(*store));
    for (const blend::Metric& m : metrics) {
      const uint32_t flags = m.counter ? BLEND_PROMETHEUS_COUNTER : 0;
      if (const int32_t stop = fn(user, m.name, m.labels, m.help, flags, m.value); stop != 0) {
        return {BLEND_E_CALLBACK, "the callback asked to stop", stop};
      }
    }
    return Status::ok();
  });
}

int32_t blend_store_get_metrics(const blend_store* store, const char* name, char* text,
                                size_t capacity, size_t* n_bytes, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(n_bytes);
    if (capacity > 0) BLEND_REQUIRE(text);
    BLEND_ASSIGN(const auto metrics, metrics_of(*store));
    const std::string all = blend::prometheus_text(metrics, name != nullptr ? name : "");
    *n_bytes = all.size();
    if (all.size() > capacity) {
      return blend::make_error(BLEND_E_BUFFER_TOO_SMALL, "the text needs %zu bytes, not %zu",
                               all.size(), capacity);
    }
    std::memcpy(text, all.data(), all.size());
    if (all.size() < capacity) text[all.size()] = '\0';
    return Status::ok();
  });
}

}  // extern "C"
