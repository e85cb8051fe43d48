#include "store/store.h"

#include <cstring>

#include "base/utf8_stream.h"
#include "capi/chunk_ids.h"
#include "capi/error.h"
#include "capi/handles.h"
#include "capi/log.h"
#include "capi/remote_options.h"
#include "capi/structs.h"
#include "engine/device_readable.h"
#include "store/codec/registry.h"
#include "store/remote/options.h"

using blend::Status;

namespace blend::capi {

DType resolve_kv_dtype(const blend_store& store, const ModelDescription& model) {
  return resolve_kv_dtype(store.kv_dtype, model);
}

DType resolve_kv_dtype(uint32_t kv_dtype, const ModelDescription& model) {
  switch (kv_dtype) {
    case BLEND_DTYPE_F32:
      return DType::f32;
    case BLEND_DTYPE_F16:
      return DType::f16;
    case BLEND_DTYPE_BF16:
      return DType::bf16;
    default:
      return model.config().weight_dtype == DType::bf16 ? DType::bf16 : DType::f16;
  }
}

uint32_t kv_dtype_code(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return BLEND_DTYPE_F32;
    case DType::f16:
      return BLEND_DTYPE_F16;
    case DType::bf16:
      return BLEND_DTYPE_BF16;
  }
  return BLEND_DTYPE_AUTO;
}

Result<std::optional<Codec>> read_codec(uint32_t codec) {
  if (codec == BLEND_CODEC_DEFAULT) return std::optional<Codec>();
  if (codec - BLEND_CODEC_NONE >= std::size(kCodecTable)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "codec %u is not a BLEND_CODEC_ value", codec);
  }
  return std::optional(static_cast<Codec>(codec - BLEND_CODEC_NONE));
}

uint32_t codec_code(Codec codec) { return BLEND_CODEC_NONE + static_cast<uint32_t>(codec); }

}  // namespace blend::capi

namespace {

constexpr uint32_t kStoreFlags = BLEND_STORE_READ_ONLY | BLEND_STORE_NO_CREATE | BLEND_STORE_GROUP;

blend_store_options default_options() {
  const blend::StoreOptions defaults;
  blend_store_options o{};
  o.struct_size = sizeof o;
  o.kv_dtype = BLEND_DTYPE_AUTO;
  o.quota_bytes = defaults.quota_bytes;
  o.queue_bytes = defaults.queue_bytes;
  o.eviction = BLEND_EVICT_LRU;
  return o;
}

blend_remote_stat to_stat(const blend::RemoteStat& s) {
  blend_remote_stat out{};
  out.hits = s.hits;
  out.misses = s.misses;
  out.late = s.late;
  out.read_bytes = s.read_bytes;
  out.written_bytes = s.written_bytes;
  out.written = s.written;
  out.existing = s.existed;
  out.dropped = s.dropped;
  out.damaged = s.damaged;
  out.errors = s.errors;
  out.downs = s.downs;
  out.queued = s.queued;
  out.arriving_bytes = s.arriving_bytes;
  out.look_up_p50_us = s.look_up_p50_us;
  out.look_up_p99_us = s.look_up_p99_us;
  out.segment_p50_us = s.segment_p50_us;
  out.segment_p99_us = s.segment_p99_us;
  out.read_bytes_per_s = s.bytes_per_s;
  out.state = !s.configured ? BLEND_REMOTE_NONE
              : s.reachable ? BLEND_REMOTE_REACHABLE
                            : BLEND_REMOTE_OFF;
  return out;
}

// The figures that blend_store_stat and blend_store_report both have.
template <typename Out>
void show_watched(const blend::StoreStat& s, Out& out) {
  out.read_mode = static_cast<uint32_t>(s.read_mode);
  out.n_chunks = s.n_chunks;
  out.n_tokens = s.n_tokens;
  out.bytes = s.bytes;
  out.stored_bytes = s.stored_bytes;
  out.quota_bytes = s.quota_bytes;
  out.file_bytes = s.file_bytes;
  out.queue_bytes = s.queue_bytes;
  out.hits = s.hits;
  out.misses = s.misses;
  out.damaged = s.damaged;
  out.written = s.written;
  out.write_errors = s.write_errors;
}

// Its texts are those of `meta`.
blend_chunk_info describe(const blend::ChunkMeta& meta, const blend::UseRecord* use) {
  blend_chunk_info i{};
  i.struct_size = sizeof i;
  i.n_tokens = meta.shape.n_tokens;
  i.n_prefix_tokens = meta.n_prefix_tokens;
  i.kv_dtype = blend::capi::kv_dtype_code(meta.shape.dtype);
  i.n_layers = meta.shape.n_layers;
  i.kv_dim = meta.shape.kv_dim;
  i.bytes = meta.shape.total_bytes();
  i.created_unix_s = meta.created_unix_s;
  std::memcpy(i.id.bytes, meta.id.data(), meta.id.size());
  std::memcpy(i.fingerprint, meta.fingerprint.data(), meta.fingerprint.size());
  i.stored_bytes = meta.stored_bytes;
  i.codec = blend::capi::codec_code(meta.codec);
  i.label = meta.name.label.has_value() ? meta.name.label->c_str() : "";
  i.tags = meta.name.tags.has_value() ? meta.name.tags->c_str() : "";
  if (use != nullptr) {
    i.last_used_unix_s = static_cast<int64_t>(use->stamp_us / 1'000'000);
    i.n_uses = use->uses;
    i.pinned = use->pinned ? 1 : 0;
  }
  return i;
}

blend::Result<blend::Eviction> eviction_of(uint32_t eviction) {
  switch (eviction) {
    case BLEND_EVICT_LRU:
      return blend::Eviction::lru;
    case BLEND_EVICT_FIFO:
      return blend::Eviction::fifo;
    case BLEND_EVICT_REUSE:
      return blend::Eviction::reuse;
    case BLEND_EVICT_NEVER:
      return blend::Eviction::never;
    default:
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "eviction %u is not a BLEND_EVICT_ value",
                               eviction);
  }
}

}  // namespace

namespace blend::capi {

blend_chunk_info describe_stored(StoreAdmin& store, const ChunkMeta& meta) {
  const auto use = store.use(meta.id);
  return describe_used(meta, use.is_ok() ? &use.value() : nullptr);
}

blend_chunk_info describe_used(const ChunkMeta& meta, const UseRecord* use) {
  return ::describe(meta, use);
}

}  // namespace blend::capi

extern "C" {

int32_t blend_store_options_init(blend_store_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_options());
}

int32_t blend_store_open(blend_store** out, const blend_ctx* ctx, const char* path,
                         const blend_store_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(ctx);
    BLEND_REQUIRE(path);
    BLEND_RETURN_IF_ERROR(ctx->runtime->check_fork());
    blend_store_options o = default_options();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    if ((o.flags & ~kStoreFlags) != 0) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_STORE_ bits",
                               o.flags);
    }
    if (o.kv_dtype > BLEND_DTYPE_BF16) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "kv_dtype %u is not a BLEND_DTYPE_ value",
                               o.kv_dtype);
    }
    if (o.read_mode > BLEND_READ_MAPPED) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "read_mode %u is not a BLEND_READ_ value",
                               o.read_mode);
    }
    BLEND_ASSIGN(const std::optional<blend::Codec> codec, blend::capi::read_codec(o.codec));
    if (o.quota_bytes == 0) {
      return {BLEND_E_INVALID_ARGUMENT, "quota_bytes must not be 0; the default is 16 GiB"};
    }
    constexpr double kMostStep = 16;
    if (o.codec_step != 0 && !(o.codec_step >= 1 / kMostStep && o.codec_step <= kMostStep)) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "codec_step %g must be in [0.0625, 16]; 0 is the default, 1",
                               o.codec_step);
    }
    if (o.check_tokens > blend::AnswerTrace::kMostPositions) {
      return blend::make_error(
          BLEND_E_INVALID_ARGUMENT, "check_tokens %u is more than %u; 0 is the default, %u",
          o.check_tokens, blend::AnswerTrace::kMostPositions, blend::AnswerTrace::kUsualPositions);
    }
    blend::StoreOptions s;
    if (o.codec_step != 0) s.codec_step = o.codec_step;
    s.quota_bytes = o.quota_bytes;
    s.queue_bytes = o.queue_bytes;
    s.codec = codec.value_or(blend::Codec::none);
    s.read_mode = static_cast<blend::ReadMode>(o.read_mode);
    BLEND_ASSIGN(s.eviction, eviction_of(o.eviction));
    s.ttl_s = o.ttl_s;
    s.tenant_quota_bytes = o.tenant_quota_bytes;
    if (o.most_variants != 0) s.most_variants = o.most_variants;
    s.ram_bytes = o.ram_bytes;
    s.host_memory = blend::device_readable_memory(*ctx->runtime);
    s.read_only = (o.flags & BLEND_STORE_READ_ONLY) != 0;
    s.group = (o.flags & BLEND_STORE_GROUP) != 0;
    s.create = !s.read_only && (o.flags & BLEND_STORE_NO_CREATE) == 0;
    auto handle = std::make_unique<blend_store>();
    BLEND_ASSIGN(const std::optional<blend::RemoteOptions> remote,
                 blend::capi::read_remote(o.remote));
    auto opened = remote.has_value() ? blend::Store::open(path, s, *remote, ctx->runtime->log())
                                     : blend::Store::open(path, s, ctx->runtime->log());
    if (!opened.is_ok()) return opened.status().with_context("store '" + std::string(path) + "'");
    handle->runtime = ctx->runtime;
    handle->store = std::move(*opened);
    handle->kv_dtype = o.kv_dtype;
    handle->read_only = s.read_only;
    handle->idle = std::make_shared<blend::IdleWorker>(ctx->runtime);
    if (!s.read_only) {
      handle->later = std::make_unique<blend::DeferredPrefill>(handle->idle, handle->store);
    }
    const auto book = std::make_shared<blend::FidelityBook>(handle->store, s.read_only);
    blend::FidelityChecks::Options checks;
    if (o.check_every != 0) checks.every = o.check_every;
    if (o.check_tokens != 0) checks.tokens = o.check_tokens;
    handle->checks = std::make_shared<blend::FidelityChecks>(handle->idle, book, checks);
    blend::capi::tell_opened(ctx->runtime->log(), *handle->store, path, s);
    *out = handle.release();
    return Status::ok();
  });
}

void blend_store_close(blend_store* store) {
  // Leaked in a forked child: the end of a condition variable waits for the threads that wait for
  // it, which the child does not have.
  if (store != nullptr && store->idle->forked()) return;
  delete store;
}

int32_t blend_store_flush(const blend_store* store, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    const Status prefilled = store->later == nullptr ? Status::ok() : store->later->flush();
    const Status written = store->store->flush();
    return prefilled.is_ok() ? written : prefilled;
  });
}

int32_t blend_store_remove(const blend_store* store, const blend_chunk_id* id, const char* tenant,
                           blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(id);
    const blend::Sha256 chunk = blend::capi::digest_of(*id);
    if (tenant == nullptr) return store->store->remove(chunk);
    return store->store->remove(chunk, blend::tenant_tag(tenant));
  });
}

int32_t blend_store_get_stat(const blend_store* store, blend_store_stat* stat, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(const blend::StoreStat s, store->store->stat());
    blend_store_stat out{};
    show_watched(s, out);
    return blend::capi::write_struct(stat, out);
  });
}

int32_t blend_store_get_remote_stat(const blend_store* store, blend_remote_stat* stat,
                                    blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(const blend::StoreStat s, store->store->stat());
    return blend::capi::write_struct(stat, to_stat(s.remote));
  });
}

int32_t blend_store_get_report(const blend_store* store, blend_store_report* report,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(const blend::StoreStat s, store->store->stat());
    blend_store_report out{};
    show_watched(s, out);
    out.read_bytes_per_s = store->reads->per_second();
    out.ram_hits = s.ram_hits;
    out.pinned_chunks = s.totals.pinned_chunks;
    out.pinned_bytes = s.totals.pinned_bytes;
    out.total_ram_hits = s.totals.ram_hits;
    out.total_disk_hits = s.totals.disk_hits;
    out.total_misses = s.totals.misses;
    out.evicted_chunks = s.totals.evicted_chunks;
    out.evicted_bytes = s.totals.evicted_bytes;
    out.expired_chunks = s.totals.expired_chunks;
    out.oldest_use_unix_s = static_cast<int64_t>(s.oldest_use_us / 1'000'000);
    out.newest_use_unix_s = static_cast<int64_t>(s.newest_use_us / 1'000'000);
    out.ram_bytes = s.ram_bytes;
    out.ram_budget_bytes = s.ram_budget_bytes;
    out.ram_chunks = s.ram_chunks;
    out.prefetched_chunks = s.prefetched;
    const blend::TextTotals texts = s.texts.value_or(blend::TextTotals{});
    out.n_texts = texts.n_texts;
    out.varied_texts = texts.n_varied;
    out.n_variants = texts.n_variants;
    out.variant_bytes = texts.variant_bytes;
    out.variant_hits = s.variant_hits;
    out.total_variant_hits = texts.variant_hits;
    const blend::FidelityChecks::Counts checks = store->checks->counts();
    out.checks_done = checks.done;
    out.checks_dropped = checks.dropped;
    out.checks_queued = checks.queued;
    return blend::capi::write_struct(report, out);
  });
}

int32_t blend_store_get_codec_stat(const blend_store* store, uint32_t codec, blend_codec_stat* stat,
                                   blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_ASSIGN(const std::optional<blend::Codec> asked, blend::capi::read_codec(codec));
    if (!asked.has_value()) {
      return {BLEND_E_INVALID_ARGUMENT, "BLEND_CODEC_DEFAULT: name a codec"};
    }
    BLEND_ASSIGN(const blend::StoreStat s, store->store->stat());
    const blend::CodecStat& of = s.codecs[static_cast<size_t>(*asked)];
    blend_codec_stat out{};
    out.codec = codec;
    out.n_chunks = of.n_chunks;
    out.bytes = of.bytes;
    out.stored_bytes = of.stored_bytes;
    return blend::capi::write_struct(stat, out);
  });
}

}  // extern "C"
