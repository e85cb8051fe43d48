// Stores: chunks, what stays of them, the remote tier, and figures.
#ifndef BLEND_CPP_STORE_HPP
#define BLEND_CPP_STORE_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "blend/admin.h"
#include "blend/cpp/context.hpp"
#include "blend/fidelity.h"
#include "blend/remote.h"
#include "blend/report.h"
#include "blend/store.h"

namespace blendpp {

class Model;
class Profile;

// What one way of fusing was seen to do; false stops.
using FidelityRow = blend_fidelity_row;
using FidelityFn = std::function<bool(const FidelityRow& row)>;

using ChunkFn = std::function<bool(const blend_chunk_info& info, const char* problem)>;

// One figure; the strings are never freed. `counter`: it only grows. Return true to go on.
using MetricFn = std::function<bool(const char* name, const char* labels, const char* help,
                                    bool counter, double value)>;

// A chunk of the remote tier; `id` null: a key there does not tell it; `problem` null: it is sound.
// Return true to go on.
using RemoteFn = std::function<bool(const blend_chunk_id* id, const char* problem)>;

namespace detail {

inline int32_t on_chunk(void* user, const blend_chunk_info* info, const char* problem) noexcept {
  return static_cast<Guarded<ChunkFn>*>(user)->call(*info, problem);
}

inline int32_t on_fidelity(void* user, const blend_fidelity_row* row) noexcept {
  return static_cast<Guarded<FidelityFn>*>(user)->call(*row);
}

inline int32_t on_metric(void* user, const char* name, const char* labels, const char* help,
                         uint32_t flags, double value) noexcept {
  return static_cast<Guarded<MetricFn>*>(user)->call(
      name, labels, help, (flags & BLEND_PROMETHEUS_COUNTER) != 0, value);
}

inline int32_t on_remote(void* user, const blend_chunk_id* id, const char* problem) noexcept {
  return static_cast<Guarded<RemoteFn>*>(user)->call(id, problem);
}

}  // namespace detail

using StoreStat = detail::Sized<blend_store_stat>;
using StoreReport = detail::Sized<blend_store_report>;
using RemoteStat = detail::Sized<blend_remote_stat>;
using CodecStat = detail::Sized<blend_codec_stat>;

using RemoteOptions = detail::Initialised<blend_remote_options, blend_remote_options_init>;
// `remote` takes the place of the C member of that name; without a `url` there is no remote tier.
struct StoreOptions : detail::Initialised<blend_store_options, blend_store_options_init> {
  RemoteOptions remote;
};

using Storage = detail::Sized<blend_storage>;

struct FilterOptions : detail::Initialised<blend_filter_options, blend_filter_options_init> {
  std::optional<std::string> tenant;  // only its chunks; "" is the tenant without a name
};

struct TransferOptions : detail::Initialised<blend_transfer_options, blend_transfer_options_init> {
  ProgressFn on_progress;
};

// What the chunks of one tenant take and may take (0: no bound but the store's).
struct TenantUse {
  uint64_t n_chunks = 0;
  uint64_t stored_bytes = 0;
  uint64_t quota_bytes = 0;
};

// A directory of stored chunks. Thread-safe.
class Store {
 public:
  Store(const Context& ctx, const std::string& path, const StoreOptions& options = StoreOptions()) {
    detail::Outcome outcome;
    blend_store_options copy = options;
    copy.remote = &options.remote;
    blend_store* raw = nullptr;
    outcome.check(blend_store_open(&raw, ctx.get(), path.c_str(), &copy, outcome.out()));
    handle_ = {raw, {ctx.log()}};
  }
  // Waits until every background write so far is on disk.
  void flush() const {
    detail::Outcome outcome;
    outcome.check(blend_store_flush(get(), outcome.out()));
  }
  // `problem` is null for a sound chunk. Throws CORRUPT after the last chunk if any was damaged.
  void list(bool verify, const ChunkFn& fn) const { list(FilterOptions(), verify, fn); }
  // The chunks that `filter` means.
  void list(const FilterOptions& filter, bool verify, const ChunkFn& fn) const {
    detail::Outcome outcome;
    detail::Guarded<ChunkFn> guarded{fn, outcome};
    outcome.check(blend_store_list(get(), detail::c_string(filter.tenant), &filter, verify ? 1 : 0,
                                   &detail::on_chunk, &guarded, outcome.out()));
  }
  // With a tenant, NOT_FOUND where the chunk is another's.
  void remove(const ChunkId& id, const std::optional<std::string>& tenant = {}) const {
    detail::Outcome outcome;
    outcome.check(blend_store_remove(get(), &id, detail::c_string(tenant), outcome.out()));
  }
  // Removes the chunks that `filter` means; how many. `fn` (may be empty) is told of each before,
  // and stops it by false.
  uint64_t remove_matching(const FilterOptions& filter, const ChunkFn& fn = {}) const {
    detail::Outcome outcome;
    detail::Guarded<ChunkFn> guarded{fn, outcome};
    uint64_t n = 0;
    outcome.check(blend_store_remove_matching(get(), detail::c_string(filter.tenant), &filter,
                                              fn ? &detail::on_chunk : nullptr, &guarded, &n,
                                              outcome.out()));
    return n;
  }
  // What a chunk is called from now on; null leaves what is there, "" removes it. Without a tenant:
  // whoever's it is.
  void set_label(const ChunkId& id, const char* label, const char* tags = nullptr,
                 const std::optional<std::string>& tenant = {}) const {
    detail::Outcome outcome;
    outcome.check(
        blend_store_set_label(get(), &id, detail::c_string(tenant), label, tags, outcome.out()));
  }
  // Whether the background write of a chunk is done within `timeout_ms`; negative: waits for it.
  // Throws the write's own error.
  bool wait(const ChunkId& id, int64_t timeout_ms = -1) const {
    detail::Outcome outcome;
    return outcome.check(blend_store_wait(get(), &id, timeout_ms, outcome.out())) == BLEND_OK;
  }
  // Names what coming prompts need, in the order of need.
  void prefetch(const std::vector<ChunkId>& ids) const {
    detail::Outcome outcome;
    const std::vector<blend_chunk_id> raw(ids.begin(), ids.end());
    outcome.check(blend_store_prefetch(get(), raw.data(), raw.size(), outcome.out()));
  }
  // Has chunks that are put from here on rounded as the profile says.
  void set_codec_profile(const Profile& profile) const;
  // Removes damaged chunks, `fn` (may be empty) is told of each; how many there were.
  uint64_t repair(const ChunkFn& fn = {}) const {
    detail::Outcome outcome;
    detail::Guarded<ChunkFn> guarded{fn, outcome};
    uint64_t n = 0;
    outcome.check(
        blend_store_repair(get(), fn ? &detail::on_chunk : nullptr, &guarded, &n, outcome.out()));
    return n;
  }
  // A compact copy in another directory.
  void copy(const std::string& path) const {
    detail::Outcome outcome;
    outcome.check(blend_store_copy(get(), path.c_str(), outcome.out()));
  }
  // Makes a store's data file as small as its chunks; nobody may have it open. Bytes before and
  // after.
  static std::pair<uint64_t, uint64_t> compact(const std::string& path) {
    detail::Outcome outcome;
    std::pair<uint64_t, uint64_t> bytes{0, 0};
    outcome.check(blend_store_compact(path.c_str(), &bytes.first, &bytes.second, outcome.out()));
    return bytes;
  }
  // How many chunks were written to, or put from, a file.
  uint64_t export_to(const std::string& path,
                     const TransferOptions& options = TransferOptions()) const {
    return transfer(&blend_store_export, path, options);
  }
  uint64_t import_from(const std::string& path,
                       const TransferOptions& options = TransferOptions()) const {
    return transfer(&blend_store_import, path, options);
  }
  // Whether the remote tier's servers answer and accept this client.
  void remote_check() const {
    detail::Outcome outcome;
    outcome.check(blend_store_remote_check(get(), outcome.out()));
  }
  // How many chunks went to the remote tier, or came from there.
  uint64_t remote_push(const TransferOptions& options = TransferOptions()) const {
    return move(&blend_store_remote_push, options);
  }
  uint64_t remote_pull(const TransferOptions& options = TransferOptions()) const {
    return move(&blend_store_remote_pull, options);
  }
  // Every chunk there, or those of the options' ids, read and checked.
  void remote_verify(const RemoteFn& fn, const TransferOptions& options = TransferOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<RemoteFn> guarded{fn, outcome};
    outcome.check(
        blend_store_remote_verify(get(), &options, &detail::on_remote, &guarded, outcome.out()));
  }
  // How fast it is from here, measured on a few of its chunks; its cost is the caller's to say.
  Storage remote_measure() const {
    return detail::filled<Storage>(&blend_store_remote_measure, get());
  }
  void remote_remove(const ChunkId& id) const {
    detail::Outcome outcome;
    outcome.check(blend_store_remote_remove(get(), &id, outcome.out()));
  }
  // How often answers agree with full prefill, by way of fusing. `agreement_target` 0: the default.
  void fidelity(const FidelityFn& fn, double agreement_target = 0) const {
    fidelity_of(nullptr, fn, agreement_target);
  }
  // The same for one model.
  void fidelity(const Model& model, const FidelityFn& fn, double agreement_target = 0) const;
  // Checks the answers that wait for it, now.
  void run_checks() const {
    detail::Outcome outcome;
    outcome.check(blend_store_run_checks(get(), outcome.out()));
  }
  // Every figure of the store, for a host's own metrics system.
  void list_metrics(const MetricFn& fn) const {
    detail::Outcome outcome;
    detail::Guarded<MetricFn> guarded{fn, outcome};
    outcome.check(blend_store_list_metrics(get(), &detail::on_metric, &guarded, outcome.out()));
  }
  // The text that Prometheus scrapes, with the label store="`name`".
  std::string metrics(const std::string& name) const {
    for (size_t capacity = 8192;;) {
      detail::Outcome outcome;
      std::string text(capacity, '\0');
      size_t n = 0;
      const int32_t code =
          blend_store_get_metrics(get(), name.c_str(), text.data(), text.size(), &n, outcome.out());
      if (code == BLEND_E_BUFFER_TOO_SMALL) {
        capacity = n + 256;
        continue;
      }
      outcome.check(code);
      text.resize(n);
      return text;
    }
  }
  // A pinned chunk is not evicted and does not expire.
  void set_pinned(const ChunkId& id, bool pinned = true) const {
    detail::Outcome outcome;
    outcome.check(blend_store_set_pinned(get(), &id, pinned ? 1 : 0, outcome.out()));
  }
  // Until at most `target_bytes` are stored; how many chunks left.
  uint64_t evict(uint64_t target_bytes) const {
    detail::Outcome outcome;
    uint64_t n = 0;
    outcome.check(blend_store_evict(get(), target_bytes, &n, outcome.out()));
    return n;
  }
  void set_tenant_quota(const std::string& tenant, uint64_t quota_bytes) const {
    detail::Outcome outcome;
    outcome.check(blend_store_set_tenant_quota(get(), tenant.c_str(), quota_bytes, outcome.out()));
  }
  TenantUse tenant_usage(const std::string& tenant) const {
    detail::Outcome outcome;
    TenantUse use;
    outcome.check(blend_store_get_tenant_usage(get(), tenant.c_str(), &use.n_chunks,
                                               &use.stored_bytes, &use.quota_bytes, outcome.out()));
    return use;
  }
  // The figures that a host watches; report() has all, but those of the remote tier.
  StoreStat stat() const { return detail::filled<StoreStat>(&blend_store_get_stat, get()); }
  StoreReport report() const { return detail::filled<StoreReport>(&blend_store_get_report, get()); }
  RemoteStat remote_stat() const {
    return detail::filled<RemoteStat>(&blend_store_get_remote_stat, get());
  }
  CodecStat codec_stat(uint32_t codec) const {
    return detail::filled<CodecStat>(&blend_store_get_codec_stat, get(), codec);
  }
  const blend_store* get() const noexcept { return handle_.get(); }
  const std::shared_ptr<const LogFn>& log() const noexcept { return handle_.get_deleter().log; }

 private:
  void fidelity_of(const blend_model* model, const FidelityFn& fn, double target) const {
    detail::Outcome outcome;
    detail::Guarded<FidelityFn> guarded{fn, outcome};
    outcome.check(blend_store_get_fidelity(get(), model, target, &detail::on_fidelity, &guarded,
                                           outcome.out()));
  }
  template <typename Fn>
  uint64_t move(Fn fn, const TransferOptions& options) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const TransferOptions copy = detail::with_progress(options, options.on_progress, guarded);
    uint64_t n = 0;
    outcome.check(fn(get(), &copy, &n, outcome.out()));
    return n;
  }
  template <typename Fn>
  uint64_t transfer(Fn fn, const std::string& path, const TransferOptions& options) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const TransferOptions copy = detail::with_progress(options, options.on_progress, guarded);
    uint64_t n = 0;
    outcome.check(fn(get(), path.c_str(), &copy, &n, outcome.out()));
    return n;
  }

  detail::Handle<blend_store, blend_store_close> handle_;
};

}  // namespace blendpp

#endif
