// What of a store stays: pins, eviction on request, quotas of tenants.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "capi/chunk_ids.h"
#include "capi/error.h"
#include "capi/handles.h"

using blend::Result;
using blend::Status;

extern "C" {

int32_t blend_store_set_pinned(const blend_store* store, const blend_chunk_id* id, int32_t pinned,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(id);
    return store->store->pin(blend::capi::digest_of(*id), pinned != 0);
  });
}

int32_t blend_store_evict(const blend_store* store, uint64_t target_bytes, uint64_t* n_evicted,
                          blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    uint64_t n = 0;
    if (n_evicted != nullptr) *n_evicted = 0;
    BLEND_REQUIRE(store);
    Status status = store->store->evict(target_bytes, &n);
    if (n_evicted != nullptr) *n_evicted = n;
    return status;
  });
}

int32_t blend_store_prefetch(const blend_store* store, const blend_chunk_id* ids, size_t n_ids,
                             blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    if (n_ids > 0) BLEND_REQUIRE(ids);
    std::vector<blend::Sha256> queue;
    queue.reserve(n_ids);
    for (size_t i = 0; i < n_ids; ++i) queue.push_back(blend::capi::digest_of(ids[i]));
    return store->store->hint(queue);
  });
}

int32_t blend_store_wait(const blend_store* store, const blend_chunk_id* id, int64_t timeout_ms,
                         blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(id);
    blend::StoreAdmin::Deadline deadline;
    if (timeout_ms >= 0) {
      // A year is as good as for ever, and does not overflow the clock.
      constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1000;
      deadline =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(std::min(timeout_ms, kYear));
    }
    const blend::Sha256 chunk = blend::capi::digest_of(*id);
    // A chunk that a fuse missed may have to be prefilled before there is anything to write.
    Status prefilled;
    if (store->later != nullptr) {
      std::optional<Status> outcome = store->later->outcome(chunk, deadline);
      if (!outcome.has_value()) return int32_t{BLEND_PENDING};
      prefilled = std::move(*outcome);
    }
    bool pending = false;
    Status written = store->store->wait(chunk, deadline, &pending);
    // Unless it came some other way since.
    if (written.code() == BLEND_E_NOT_FOUND && !prefilled.is_ok()) return prefilled;
    BLEND_RETURN_IF_ERROR(written);
    return int32_t{pending ? BLEND_PENDING : BLEND_OK};
  });
}

int32_t blend_store_set_tenant_quota(const blend_store* store, const char* tenant,
                                     uint64_t quota_bytes, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(tenant);
    return store->store->set_tenant_quota(blend::tenant_tag(tenant), quota_bytes);
  });
}

int32_t blend_store_get_tenant_usage(const blend_store* store, const char* tenant,
                                     uint64_t* n_chunks, uint64_t* stored_bytes,
                                     uint64_t* quota_bytes, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(tenant);
    BLEND_ASSIGN(const blend::TenantUse use, store->store->tenant(blend::tenant_tag(tenant)));
    if (n_chunks != nullptr) *n_chunks = use.n_chunks;
    if (stored_bytes != nullptr) *stored_bytes = use.footprint;
    if (quota_bytes != nullptr) *quota_bytes = use.quota;
    return Status::ok();
  });
}

}  // extern "C"
