#include <cstring>

#include "detail.h"

namespace blend_shim {

StoreOptions::StoreOptions() noexcept { show(*this, blendpp::StoreOptions()); }
void StoreOptions::set_secrets(const std::string& user, const std::string& password,
                               const std::string& seal_key) noexcept {
  keep([&] {
    user_ = user;
    password_ = password;
    seal_key_ = seal_key;
  });
}

namespace {

// Secrets that the library asks for while it opens the store.
struct Secrets {
  std::string user, password, seal_key;
};

int32_t tell_secret(void* user, uint32_t secret, char* out, size_t capacity,
                    size_t* n_bytes) noexcept {
  const auto& all = *static_cast<const Secrets*>(user);
  const std::string& one = secret == BLEND_SECRET_USER       ? all.user
                           : secret == BLEND_SECRET_PASSWORD ? all.password
                                                             : all.seal_key;
  if (one.size() > capacity) return 1;
  std::memcpy(out, one.data(), one.size());
  *n_bytes = one.size();
  return 0;
}

Secrets secrets_of(const StoreOptions& options) {
  Secrets out{options.user_, options.password_, {}};
  if (options.seal_key_.empty()) return out;
  try {
    const blend_chunk_id key = blendpp::ChunkId::from_hex(options.seal_key_);  // as long as an id
    out.seal_key.assign(reinterpret_cast<const char*>(key.bytes), sizeof key.bytes);
  } catch (const blendpp::Error&) {
    invalid("the remote tier's seal key must be 64 hexadecimal digits");
  }
  return out;
}

}  // namespace

ChunkInfo Chunks::at(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] {
    if (i >= chunks_.size()) invalid("no chunk " + std::to_string(i) + " in the list");
    return chunks_[i];
  });
}

Metric Metrics::at(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] {
    if (i >= metrics_.size()) invalid("no metric " + std::to_string(i) + " in the list");
    return metrics_[i];
  });
}

void ChunkIds::add(const std::string& id) noexcept {
  keep([&] { ids_.push_back(id); });
}
TransferOptions::TransferOptions() noexcept { show(*this, blendpp::TransferOptions()); }
void TransferOptions::set_ids(const ChunkIds& ids) noexcept {
  keep([&] {
    require_complete(ids);
    ids_ = ids;
  });
}

void TenantOptions::set_tenant(const std::string& tenant) noexcept {
  keep([&] { tenant_ = tenant; });
}
FilterOptions::FilterOptions() noexcept { show(*this, blendpp::FilterOptions()); }
void LabelOptions::set_label(const std::string& label) noexcept {
  keep([&] { label_ = label; });
}
void LabelOptions::set_tags(const std::string& tags) noexcept {
  keep([&] { tags_ = tags; });
}

Store::Store(std::shared_ptr<Slot<blendpp::Store>> slot) noexcept : slot_(std::move(slot)) {}
Store::~Store() = default;

Store* Store::open(const Context& ctx, const std::string& path, const StoreOptions& options,
                   Outcome& out) noexcept {
  return guarded(out, [&] {
    require_complete(options);
    blendpp::StoreOptions c;
    give(c, options);
    Secrets secrets = secrets_of(options);
    if (!secrets.user.empty() || !secrets.password.empty() || !secrets.seal_key.empty()) {
      c.remote.secret = &tell_secret;
      c.remote.secret_user = &secrets;
    }
    const auto context = ctx.slot().get();
    return new Store(make_slot("store", std::make_shared<blendpp::Store>(*context, path, c)));
  });
}

Store* Store::none() noexcept { return new (std::nothrow) Store(nullptr); }

void Store::flush(Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->flush(); });
}

namespace {

// A ChunkFn that collects its arguments.
blendpp::ChunkFn into(Chunks& chunks) {
  return [&chunks](const blend_chunk_info& c, const char* problem) {
    ChunkInfo s = shown<ChunkInfo>(c);
    if (problem != nullptr) s.problem = problem;
    chunks.chunks_.push_back(std::move(s));
    return true;
  };
}

std::vector<blendpp::ChunkId> to_c(const ChunkIds& ids) {
  require_complete(ids);
  std::vector<blendpp::ChunkId> out;
  out.reserve(ids.size());
  for (const std::string& id : ids.ids_) out.push_back(blendpp::ChunkId::from_hex(id));
  return out;
}

// Text of a language may contain NUL, which would end it in C. Null: not set.
const char* text_of(const std::optional<std::string>& text) {
  if (!text) return nullptr;
  if (text->find('\0') != std::string::npos)
    invalid("a label or tag has a control character in it");
  return text->c_str();
}

// Valid as long as `s` lives.
blendpp::FilterOptions to_c(const FilterOptions& s) {
  require_complete(s);
  blendpp::FilterOptions c;
  give(c, s);
  c.tenant = s.tenant_;
  return c;
}

// Options for export and import, and the memory they point to.
struct Transfer {
  explicit Transfer(const TransferOptions& s) : ids(to_c(s.ids_)) {
    require_complete(s);
    give(c, s);
    if (!ids.empty()) {
      raw_ids.assign(ids.begin(), ids.end());
      c.ids = raw_ids.data();
      c.n_ids = raw_ids.size();
    }
    c.on_progress = progress_of(s);
    c.cancel = raw(s.cancel_);
  }
  std::vector<blendpp::ChunkId> ids;
  std::vector<blend_chunk_id> raw_ids;
  blendpp::TransferOptions c;
};

// Damage is reported in the list.
template <typename List>
Chunks listed(const List& list) {
  Chunks chunks;
  try {
    list(chunks);
  } catch (const blendpp::Error& error) {
    bool any = false;
    for (const ChunkInfo& chunk : chunks.chunks_) any = any || !chunk.problem.empty();
    if (error.code() != BLEND_E_CORRUPT || !any) throw;
  }
  return chunks;
}

}  // namespace

Chunks Store::list(const FilterOptions& filter, bool verify, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const blendpp::FilterOptions c = to_c(filter);
    return listed([&](Chunks& chunks) { open_slot().get()->list(c, verify, into(chunks)); });
  });
}

void Store::remove(const std::string& id, const TenantOptions& options,
                   Outcome& out) const noexcept {
  guarded(out, [&] {
    require_complete(options);
    open_slot().get()->remove(blendpp::ChunkId::from_hex(id), options.tenant_);
  });
}

Chunks Store::remove_matching(const FilterOptions& filter, Outcome& out) const noexcept {
  return guarded(out, [&] {
    Chunks chunks;
    open_slot().get()->remove_matching(to_c(filter), into(chunks));
    return chunks;
  });
}

void Store::set_label(const std::string& id, const LabelOptions& options,
                      Outcome& out) const noexcept {
  guarded(out, [&] {
    require_complete(options);
    open_slot().get()->set_label(blendpp::ChunkId::from_hex(id), text_of(options.label_),
                                 text_of(options.tags_), options.tenant_);
  });
}

void Store::set_codec_profile(const Profile& profile, Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->set_codec_profile(*profile.slot().get()); });
}

StoreStat Store::stat(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto store = open_slot().get();
    auto stat = shown<StoreStat>(store->report());
    show(stat, store->remote_stat());
    return stat;
  });
}

CodecStat Store::codec_stat(uint32_t codec, Outcome& out) const noexcept {
  return guarded(out, [&] { return shown<CodecStat>(open_slot().get()->codec_stat(codec)); });
}

bool Store::wait(const std::string& id, int64_t timeout_ms, Outcome& out) const noexcept {
  return guarded(
      out, [&] { return open_slot().get()->wait(blendpp::ChunkId::from_hex(id), timeout_ms); });
}
void Store::prefetch(const ChunkIds& ids, Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->prefetch(to_c(ids)); });
}
void Store::set_pinned(const std::string& id, bool pinned, Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->set_pinned(blendpp::ChunkId::from_hex(id), pinned); });
}
uint64_t Store::evict(uint64_t target_bytes, Outcome& out) const noexcept {
  return guarded(out, [&] { return open_slot().get()->evict(target_bytes); });
}
void Store::set_tenant_quota(const std::string& tenant, uint64_t quota_bytes,
                             Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->set_tenant_quota(tenant, quota_bytes); });
}
TenantUse Store::tenant_usage(const std::string& tenant, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const blendpp::TenantUse use = open_slot().get()->tenant_usage(tenant);
    return TenantUse{use.n_chunks, use.stored_bytes, use.quota_bytes};
  });
}
Chunks Store::repair(Outcome& out) const noexcept {
  return guarded(out, [&] {
    Chunks chunks;
    open_slot().get()->repair(into(chunks));
    return chunks;
  });
}
void Store::copy(const std::string& path, Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->copy(path); });
}
uint64_t Store::export_to(const std::string& path, const TransferOptions& options,
                          Outcome& out) const noexcept {
  return guarded(out, [&] { return open_slot().get()->export_to(path, Transfer(options).c); });
}
uint64_t Store::import_from(const std::string& path, const TransferOptions& options,
                            Outcome& out) const noexcept {
  return guarded(out, [&] { return open_slot().get()->import_from(path, Transfer(options).c); });
}
void Store::remote_check(Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->remote_check(); });
}
uint64_t Store::remote_push(const TransferOptions& options, Outcome& out) const noexcept {
  return guarded(out, [&] { return open_slot().get()->remote_push(Transfer(options).c); });
}
uint64_t Store::remote_pull(const TransferOptions& options, Outcome& out) const noexcept {
  return guarded(out, [&] { return open_slot().get()->remote_pull(Transfer(options).c); });
}
Chunks Store::remote_verify(const TransferOptions& options, Outcome& out) const noexcept {
  return guarded(out, [&] {
    return listed([&](Chunks& chunks) {
      const auto note = [&chunks](const blend_chunk_id* id, const char* problem) {
        ChunkInfo chunk = shown<ChunkInfo>(blend_chunk_info{});
        chunk.id = id == nullptr ? "" : blendpp::ChunkId(*id).hex();
        if (problem != nullptr) chunk.problem = problem;
        chunks.chunks_.push_back(std::move(chunk));
        return true;
      };
      open_slot().get()->remote_verify(note, Transfer(options).c);
    });
  });
}
void Store::remote_remove(const std::string& id, Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->remote_remove(blendpp::ChunkId::from_hex(id)); });
}
Compacted Store::compact(const std::string& path, Outcome& out) noexcept {
  return guarded(out, [&] {
    const auto [before, after] = blendpp::Store::compact(path);
    return Compacted{before, after};
  });
}
Metrics Store::list_metrics(Outcome& out) const noexcept {
  return guarded(out, [&] {
    Metrics metrics;
    open_slot().get()->list_metrics(
        [&](const char* name, const char* labels, const char* help, bool counter, double value) {
          metrics.metrics_.push_back({name, labels, help, counter, value});
          return true;
        });
    return metrics;
  });
}
std::string Store::metrics(const std::string& name, Outcome& out) const noexcept {
  return guarded(out, [&] { return open_slot().get()->metrics(name); });
}

void Store::close() noexcept {
  if (slot_) slot_->take();
}

const Slot<blendpp::Store>& Store::open_slot() const {
  if (!slot_) invalid("this needs a store");
  return *slot_;
}

std::shared_ptr<blendpp::Store> Store::get() const { return slot_ ? slot_->get() : nullptr; }

}  // namespace blend_shim
