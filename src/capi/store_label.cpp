// Chunks by what they are called: labels and tags, listing and removing by them.
#include "base/utf8_stream.h"
#include "capi/chunk_ids.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "store/chunk/chunk_filter.h"

using blend::Result;
using blend::Status;

namespace {

static_assert(BLEND_LABEL_BYTES == blend::kMostLabelBytes);
static_assert(BLEND_TAGS_BYTES == blend::kMostTagsBytes);

Result<blend::ChunkFilter> read_filter(const char* tenant, const blend_filter_options* options) {
  blend_filter_options o{};
  BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
  if ((o.flags & ~BLEND_FILTER_UNLABELLED) != 0) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_FILTER_ bits",
                             o.flags);
  }
  BLEND_ASSIGN(blend::ChunkFilter filter,
               blend::read_chunk_filter(tenant, o.label, o.tags, o.model));
  filter.unlabelled = (o.flags & BLEND_FILTER_UNLABELLED) != 0;
  return filter;
}

}  // namespace

extern "C" {

int32_t blend_filter_options_init(blend_filter_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_store_set_label(const blend_store* store, const blend_chunk_id* id,
                              const char* tenant, const char* label, const char* tags,
                              blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(id);
    BLEND_ASSIGN(const blend::ChunkName name, blend::read_chunk_name(label, tags));
    const blend::Sha256 chunk = blend::capi::digest_of(*id);
    bool changed = false;
    if (tenant == nullptr) return store->store->rename(chunk, name, &changed);
    return store->store->rename(chunk, blend::tenant_tag(tenant), name, &changed);
  });
}

int32_t blend_store_list(const blend_store* store, const char* tenant,
                         const blend_filter_options* filter, int32_t verify, blend_chunk_fn fn,
                         void* user, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(fn);
    BLEND_ASSIGN(const blend::ChunkFilter wanted, read_filter(tenant, filter));
    bool any_damaged = false, others_damaged = false;
    Status status = store->store->for_each_used(
        verify != 0,
        [&](const blend::ChunkMeta& meta, const blend::UseRecord* use, const std::string& problem) {
          const bool is_meant = wanted.fits(meta);
          if (!problem.empty()) (is_meant ? any_damaged : others_damaged) = true;
          if (!is_meant) return 0;
          const blend_chunk_info info = blend::capi::describe_used(meta, use);
          return fn(user, &info, problem.empty() ? nullptr : blend::valid_utf8(problem).c_str());
        });
    // The damage of chunks that are not meant is none of this list; the store's own is.
    if (status.code() == BLEND_E_CORRUPT && others_damaged && !any_damaged) return Status::ok();
    return status;
  });
}

int32_t blend_store_remove_matching(const blend_store* store, const char* tenant,
                                    const blend_filter_options* filter, blend_chunk_fn fn,
                                    void* user, uint64_t* n_removed, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    if (n_removed != nullptr) *n_removed = 0;
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(const blend::ChunkFilter wanted, read_filter(tenant, filter));
    if (wanted.says_nothing()) {
      return {BLEND_E_INVALID_ARGUMENT,
              "the filter says nothing, so that every chunk would go: give label, tags or model; "
              "the label '*' means every chunk"};
    }
    if (store->read_only) return {BLEND_E_READ_ONLY, "the store was opened read-only"};
    // Listed before any is removed: a listing holds a snapshot.
    std::vector<blend::ChunkMeta> doomed;
    BLEND_RETURN_IF_ERROR(
        store->store->for_each(false, [&](const blend::ChunkMeta& meta, const std::string&) {
          if (!wanted.fits(meta)) return 0;
          doomed.push_back(meta);
          doomed.back().tokens = {};
          doomed.back().impact = {};
          return 0;
        }));
    for (const blend::ChunkMeta& meta : doomed) {
      if (fn != nullptr) {
        const blend_chunk_info info = blend::capi::describe_stored(*store->store, meta);
        if (const int32_t stop = fn(user, &info, nullptr); stop != 0) {
          return {BLEND_E_CALLBACK, "the callback asked to stop", stop};
        }
      }
      Status removed = store->store->remove(meta.id);
      if (removed.code() == BLEND_E_NOT_FOUND) continue;  // by another process, meanwhile
      BLEND_RETURN_IF_ERROR(removed);
      if (n_removed != nullptr) ++*n_removed;
    }
    return Status::ok();
  });
}

}  // extern "C"
