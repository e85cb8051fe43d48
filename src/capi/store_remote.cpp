// What an operator does with a store's remote tier.
#include "capi/chunk_ids.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "store/remote/options.h"

using blend::Result;
using blend::Status;

namespace {

Result<blend::RemoteAdmin*> remote_of(const blend_store& store) {
  if (blend::RemoteAdmin* const remote = store.store->remote(); remote != nullptr) return remote;
  BLEND_RETURN_IF_ERROR(blend::check_remote_built());
  return Status{BLEND_E_INVALID_ARGUMENT,
                "the store was opened without a remote tier: set `remote` in its options"};
}

struct Request {
  std::vector<blend::Sha256> ids;
  bool all = true;
  blend::Watch watch;
};

Result<Request> read_request(const blend_transfer_options* options) {
  blend_transfer_options o{};
  BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
  if (o.flags != 0) {
    return Status{BLEND_E_INVALID_ARGUMENT, "flags: none of them is for a remote tier"};
  }
  if ((o.ids == nullptr) != (o.n_ids == 0)) {
    return Status{BLEND_E_INVALID_ARGUMENT, "ids and n_ids must both be given, or neither"};
  }
  Request request;
  request.all = o.n_ids == 0;
  for (size_t i = 0; i < o.n_ids; ++i) request.ids.push_back(blend::capi::digest_of(o.ids[i]));
  request.watch = blend::capi::make_watch(o.cancel, o.progress, o.progress_user);
  return request;
}

// Moves chunk after chunk. Without ids, chunks that are damaged or vanish meanwhile are left out.
Status move_all(const Request& request, uint64_t* n_chunks,
                const std::function<Status(const blend::Sha256& id, bool* existed)>& move) {
  uint64_t n_done = 0;
  for (const blend::Sha256& id : request.ids) {
    BLEND_RETURN_IF_ERROR(request.watch.report(n_done++, request.ids.size()));
    bool existed = false;
    const Status moved = move(id, &existed);
    if (!moved.is_ok()) {
      const bool left_out = moved.code() == BLEND_E_NOT_FOUND || moved.code() == BLEND_E_CORRUPT;
      if (request.all && left_out) continue;
      return moved.with_context("chunk " + blend::to_hex(id));
    }
    if (!existed && n_chunks != nullptr) ++*n_chunks;
  }
  return request.watch.report(n_done, request.ids.size());
}

}  // namespace

extern "C" {

int32_t blend_store_remote_check(const blend_store* store, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(blend::RemoteAdmin* const remote, remote_of(*store));
    return remote->check();
  });
}

int32_t blend_store_remote_push(const blend_store* store, const blend_transfer_options* options,
                                uint64_t* n_chunks, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    if (n_chunks != nullptr) *n_chunks = 0;
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(blend::RemoteAdmin* const remote, remote_of(*store));
    BLEND_ASSIGN(Request request, read_request(options));
    if (request.all) {
      BLEND_RETURN_IF_ERROR(
          store->store->for_each(false, [&](const blend::ChunkMeta& meta, const std::string&) {
            request.ids.push_back(meta.id);
            return 0;
          }));
    }
    return move_all(request, n_chunks, [&](const blend::Sha256& id, bool* existed) {
      return remote->push(id, existed);
    });
  });
}

int32_t blend_store_remote_pull(const blend_store* store, const blend_transfer_options* options,
                                uint64_t* n_chunks, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    if (n_chunks != nullptr) *n_chunks = 0;
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(blend::RemoteAdmin* const remote, remote_of(*store));
    BLEND_ASSIGN(Request request, read_request(options));
    if (request.all) {
      BLEND_ASSIGN(request.ids, remote->list([](const std::string&, const Status&) {}));
    }
    return move_all(request, n_chunks, [&](const blend::Sha256& id, bool* existed) {
      return remote->pull(id, existed);
    });
  });
}

int32_t blend_store_remote_verify(const blend_store* store, const blend_transfer_options* options,
                                  blend_remote_fn fn, void* user, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(blend::RemoteAdmin* const remote, remote_of(*store));
    BLEND_ASSIGN(Request request, read_request(options));
    Status told;
    bool damaged = false;
    const auto tell = [&](const blend::Sha256* id, const char* problem) {
      if (fn == nullptr || !told.is_ok()) return;
      blend_chunk_id raw{};
      if (id != nullptr) std::memcpy(raw.bytes, id->data(), id->size());
      if (const int32_t rc = fn(user, id == nullptr ? nullptr : &raw, problem); rc != 0) {
        told = {BLEND_E_CALLBACK, "the callback asked to stop", rc};
      }
    };
    if (request.all) {
      BLEND_ASSIGN(request.ids, remote->list([&](const std::string& key, const Status& why) {
        damaged = true;
        tell(nullptr, (key + ": " + why.message()).c_str());
      }));
    }
    uint64_t n_done = 0;
    for (const blend::Sha256& id : request.ids) {
      BLEND_RETURN_IF_ERROR(told);
      BLEND_RETURN_IF_ERROR(request.watch.report(n_done++, request.ids.size()));
      const Status sound = remote->verify(id);
      const int32_t code = sound.code();
      if (request.all && code == BLEND_E_NOT_FOUND) continue;  // evicted meanwhile
      if (!sound.is_ok() && code != BLEND_E_CORRUPT && code != BLEND_E_UNSUPPORTED) {
        return sound.with_context("chunk " + blend::to_hex(id));
      }
      damaged = damaged || !sound.is_ok();
      tell(&id, sound.is_ok() ? nullptr : sound.message().c_str());
    }
    BLEND_RETURN_IF_ERROR(told);
    BLEND_RETURN_IF_ERROR(request.watch.report(n_done, request.ids.size()));
    if (damaged) return {BLEND_E_CORRUPT, "chunks in the remote tier are damaged or not whole"};
    return Status::ok();
  });
}

int32_t blend_store_remote_measure(const blend_store* store, blend_storage* out,
                                   blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(out);
    BLEND_ASSIGN(blend::RemoteAdmin* const remote, remote_of(*store));
    blend_storage values{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(out, values));
    BLEND_ASSIGN(const blend::RemoteSpeed speed, remote->measure());
    values.bytes_per_s = speed.bytes_per_s;
    values.latency_s = speed.latency_s;
    return blend::capi::write_struct(out, values);
  });
}

int32_t blend_store_remote_remove(const blend_store* store, const blend_chunk_id* id,
                                  blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(id);
    BLEND_ASSIGN(blend::RemoteAdmin* const remote, remote_of(*store));
    return remote->remove(blend::capi::digest_of(*id));
  });
}

}  // extern "C"
