// Stores: where chunks are kept.
#ifndef BLEND_SHIM_STORE_H
#define BLEND_SHIM_STORE_H

#include <optional>
#include <vector>

#include "context.h"

namespace blendpp {
class Store;
}

namespace blend_shim {

class Profile;

struct StoreOptions : public Builder {
  StoreOptions() noexcept;
  BLEND_STORE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  // For the remote tier; "": without. seal_key: 64 hexadecimal digits. All three empty: the
  // environment's.
  void set_secrets(const std::string& user, const std::string& password,
                   const std::string& seal_key) noexcept;
#ifndef SWIG
  std::string user_, password_, seal_key_;
#endif
};

struct StoreStat {
  BLEND_STORE_STAT_FIELDS(BLEND_SHIM_DECLARE)
};

struct CodecStat {
  BLEND_CODEC_STAT_FIELDS(BLEND_SHIM_DECLARE)
};

struct ChunkInfo {
  BLEND_CHUNK_INFO_FIELDS(BLEND_SHIM_DECLARE)
  std::string problem;  // "" for a sound chunk
};

// A list of chunks. Immutable.
class Chunks {
 public:
  size_t size() const noexcept { return chunks_.size(); }
  ChunkInfo at(size_t i, Outcome& out) const noexcept;  // i < size()
#ifndef SWIG
  std::vector<ChunkInfo> chunks_;
#endif
};

// Ids of stored chunks. If one is not 64 hexadecimal digits, the call that takes them fails.
class ChunkIds : public Builder {
 public:
  void add(const std::string& id) noexcept;
  size_t size() const noexcept { return ids_.size(); }
#ifndef SWIG
  std::vector<std::string> ids_;
#endif
};

class TransferOptions : public Call {
 public:
  TransferOptions() noexcept;
  BLEND_TRANSFER_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  void set_ids(const ChunkIds& ids) noexcept;  // export: only these; none: all that are sound
#ifndef SWIG
  ChunkIds ids_;
#endif
};

// Options of calls that mean one tenant's chunks, or all tenants' where none is set. "" is the
// tenant without a name.
struct TenantOptions : public Builder {
  void set_tenant(const std::string& tenant) noexcept;
#ifndef SWIG
  std::optional<std::string> tenant_;
#endif
};

// Selects chunks; members that are not set mean every one.
struct FilterOptions : public TenantOptions {
  FilterOptions() noexcept;
  BLEND_FILTER_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

// What a chunk is called. What is not set stays as it is, "" removes it.
struct LabelOptions : public TenantOptions {
  void set_label(const std::string& label) noexcept;
  void set_tags(const std::string& tags) noexcept;
#ifndef SWIG
  std::optional<std::string> label_, tags_;
#endif
};

// Usage and quota of one tenant's chunks (0: no bound but the store's).
struct TenantUse {
  uint64_t n_chunks = 0;
  uint64_t stored_bytes = 0;
  uint64_t quota_bytes = 0;
};

// Effect of compacting on the data file.
struct Compacted {
  uint64_t bytes_before = 0;
  uint64_t bytes_after = 0;
};

// One figure of a store.
struct Metric {
  std::string name;
  std::string labels;  // such as tier="ram", or ""
  std::string help;
  bool counter = false;  // it only grows
  double value = 0;
};

// All of them; those of one name together. Immutable.
class Metrics {
 public:
  size_t size() const noexcept { return metrics_.size(); }
  Metric at(size_t i, Outcome& out) const noexcept;  // i < size()
#ifndef SWIG
  std::vector<Metric> metrics_;
#endif
};

// Every function may be called on any thread at any time, close() included; see Context.
class Store {
 public:
  // Null on failure.
  static Store* open(const Context& ctx, const std::string& path, const StoreOptions& options,
                     Outcome& out) noexcept;
  // No store at all, for fuses and layerwise fuses with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE.
  static Store* none() noexcept;
  ~Store();
  void flush(Outcome& out) const noexcept;
  // With `verify`, damaged chunks have a `problem`; the call itself does not fail because of them.
  Chunks list(const FilterOptions& filter, bool verify, Outcome& out) const noexcept;
  void remove(const std::string& id, const TenantOptions& options, Outcome& out) const noexcept;
  Chunks remove_matching(const FilterOptions& filter, Outcome& out) const noexcept;
  void set_label(const std::string& id, const LabelOptions& options, Outcome& out) const noexcept;
  StoreStat stat(Outcome& out) const noexcept;
  CodecStat codec_stat(uint32_t codec, Outcome& out) const noexcept;
  // Whether the background write of a chunk is done within timeout_ms (negative: waits for it). If
  // the write failed, its error is this call's.
  bool wait(const std::string& id, int64_t timeout_ms, Outcome& out) const noexcept;
  // Chunks of the profile's model that are put from here on are rounded by the profile.
  void set_codec_profile(const Profile& profile, Outcome& out) const noexcept;
  // The chunks that coming prompts need, first needed first. Replaces the list before.
  void prefetch(const ChunkIds& ids, Outcome& out) const noexcept;
  void set_pinned(const std::string& id, bool pinned, Outcome& out) const noexcept;
  uint64_t evict(uint64_t target_bytes, Outcome& out) const noexcept;  // how many chunks left
  void set_tenant_quota(const std::string& tenant, uint64_t quota_bytes,
                        Outcome& out) const noexcept;
  TenantUse tenant_usage(const std::string& tenant, Outcome& out) const noexcept;
  Chunks repair(Outcome& out) const noexcept;  // those that were damaged, and are removed
  void copy(const std::string& path, Outcome& out) const noexcept;
  // How many chunks were written to, or put from, a file.
  uint64_t export_to(const std::string& path, const TransferOptions& options,
                     Outcome& out) const noexcept;
  uint64_t import_from(const std::string& path, const TransferOptions& options,
                       Outcome& out) const noexcept;
  // The remote tier: whether its servers answer; how many chunks went there or came from there; all
  // chunks there with their ids ("": a key that does not tell it) and problems, and nothing else.
  void remote_check(Outcome& out) const noexcept;
  uint64_t remote_push(const TransferOptions& options, Outcome& out) const noexcept;
  uint64_t remote_pull(const TransferOptions& options, Outcome& out) const noexcept;
  Chunks remote_verify(const TransferOptions& options, Outcome& out) const noexcept;
  void remote_remove(const std::string& id, Outcome& out) const noexcept;
  // Nobody may have the store open.
  static Compacted compact(const std::string& path, Outcome& out) noexcept;
  Metrics list_metrics(Outcome& out) const noexcept;
  // The text that Prometheus scrapes, with the label store="`name`".
  std::string metrics(const std::string& name, Outcome& out) const noexcept;
  // Waits until background writes are on disk, unless a call that still runs needs the store.
  void close() noexcept;
#ifndef SWIG
  std::shared_ptr<blendpp::Store> get() const;  // null: none(); throws CLOSED
#endif

 private:
#ifndef SWIG
  const Slot<blendpp::Store>& open_slot() const;  // throws for none()
  explicit Store(std::shared_ptr<Slot<blendpp::Store>> slot) noexcept;
  std::shared_ptr<Slot<blendpp::Store>> slot_;
#else
  Store();
#endif
};

}  // namespace blend_shim

#endif
