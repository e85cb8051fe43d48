// blend.hpp - C++17 over blend.h: header-only, RAII, exceptions instead of codes.
//
// Everything is in namespace `blendpp`, so that it cannot meet names that the library or its
// bindings use. A handle closes itself; handles may go out of scope in any order (blend.h,
// "Lifetime"). Option and info structs derive from the C structs and are initialised on
// construction, so every member documented in blend.h is there under the same name.
//
//   blendpp::Context ctx;
//   blendpp::Model model(ctx, "model.gguf");
//   blendpp::Store store(ctx, "store");
//   blendpp::Fusion fusion(model, &store, {"A document.", "Another."}, "Who signs?");
//   fusion.generate({}, [](int32_t, std::string_view text) { std::cout << text; return true; });
//
// Threads: as in blend.h. A const member function may run concurrently with any other on the same
// object; the others need exclusive use.
//
// Errors: a failed call throws blendpp::Error. An exception that leaves a callback never crosses
// the C boundary: it stops the call and is thrown again from it, unchanged. A progress callback
// that returns false stops the call with an Error of code BLEND_E_CALLBACK.
#ifndef BLEND_BLEND_HPP
#define BLEND_BLEND_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The whole surface, FuseOptions::selection included.
#ifndef BLEND_EXPERIMENTAL
#define BLEND_EXPERIMENTAL
#endif
#include "blend/admin.h"
#include "blend/blend.h"
#include "blend/experimental.h"
#include "blend/fidelity.h"
#include "blend/remote.h"
#include "blend/report.h"
#include "blend/step.h"

namespace blendpp {

class Model;
class Profile;

using Tokens = std::vector<int32_t>;
// Return true to go on, false to stop the call.
using ProgressFn = std::function<bool(uint64_t done, uint64_t total)>;
using TokenFn = std::function<bool(int32_t token, std::string_view text)>;
// The larger a row's score, the sooner it goes on; see blend_score_fn. All spans have one size.
template <typename T>
class Span;
using ScoreFn = std::function<bool(uint32_t layer, Span<const uint32_t> rows,
                                   Span<const float> deviation, Span<float> scores)>;
// The logits of the next token, to be changed; see blend_logits_fn.
using LogitsFn = std::function<bool(Span<float> logits)>;
// For the token that is reported next, then for the likeliest; see blend_logprobs_fn.
using LogprobsFn = std::function<bool(Span<const blend_logprob> logprobs)>;
// A line of a table as it is measured; valid during the call only. Return true to go on.
using MeasurementFn = std::function<bool(const blend_measurement& line)>;
// What one way of fusing was seen to do; false stops.
using FidelityRow = blend_fidelity_row;
using FidelityFn = std::function<bool(const FidelityRow& row)>;
using CorpusRecordFn = std::function<bool(const blend_corpus_record& record)>;
using ChunkFn = std::function<bool(const blend_chunk_info& info, const char* problem)>;
// One figure; the strings are never freed. `counter`: it only grows. Return true to go on.
using MetricFn = std::function<bool(const char* name, const char* labels, const char* help,
                                    bool counter, double value)>;
// A chunk of the remote tier; `id` null: a key there does not tell it; `problem` null: it is sound.
// Return true to go on.
using RemoteFn = std::function<bool(const blend_chunk_id* id, const char* problem)>;
// From any thread, several at once; what it throws is dropped, there is nobody to give it to.
using EventFn = std::function<void(int32_t code, const char* message)>;

// What a failed call throws. Immutable.
class Error : public std::runtime_error {
 public:
  Error(int32_t code, int64_t detail, const std::string& message)
      : std::runtime_error(message), code_(code), detail_(detail) {}
  int32_t code() const noexcept { return code_; }      // BLEND_E_*
  int64_t detail() const noexcept { return detail_; }  // the errno, a callback's value, or 0
  const char* name() const noexcept { return blend_code_name(code_); }

 private:
  int32_t code_;
  int64_t detail_;
};

// A view of memory that a handle owns; see the function that returns it for how long it is valid.
template <typename T>
class Span {
 public:
  Span(T* data, size_t size) noexcept : data_(data), size_(size) {}
  T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  T& operator[](size_t i) const noexcept { return data_[i]; }

 private:
  T* data_;
  size_t size_;
};

namespace detail {

// The error output of one call.
class Outcome {
 public:
  Outcome() = default;
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;
  ~Outcome() { blend_error_free(error_); }

  blend_error** out() noexcept { return &error_; }
  // What a callback of the call has thrown.
  std::exception_ptr thrown;

  // Rethrows the callback's exception, throws on an error code, or gives the code back.
  int32_t check(int32_t code) const {
    if (thrown) std::rethrow_exception(thrown);
    if (code >= 0) return code;
    if (error_ == nullptr) throw Error(code, 0, blend_code_name(code));
    throw Error(code, blend_error_detail(error_), blend_error_message(error_));
  }

 private:
  blend_error* error_ = nullptr;
};

inline void check(int32_t code) {
  if (code < 0) throw Error(code, 0, blend_code_name(code));
}

// A callback and where its exception goes: what `user` points at during a call.
template <typename Fn>
struct Guarded {
  const Fn& fn;
  Outcome& outcome;

  template <typename... Args>
  int32_t call(Args&&... args) noexcept {
    try {
      return fn(std::forward<Args>(args)...) ? 0 : 1;
    } catch (...) {
      outcome.thrown = std::current_exception();
      return 1;
    }
  }
};

inline int32_t on_corpus_record(void* user, const blend_corpus_record* record) noexcept {
  return static_cast<Guarded<CorpusRecordFn>*>(user)->call(*record);
}

inline int32_t on_progress(void* user, uint64_t done, uint64_t total) noexcept {
  return static_cast<Guarded<ProgressFn>*>(user)->call(done, total);
}

inline int32_t on_score(void* user, uint32_t layer, const uint32_t* rows, const float* deviation,
                        size_t n, float* scores) noexcept {
  return static_cast<Guarded<ScoreFn>*>(user)->call(layer, Span<const uint32_t>(rows, n),
                                                    Span<const float>(deviation, n),
                                                    Span<float>(scores, n));
}

inline int32_t on_logits(void* user, float* logits, size_t n_vocab) noexcept {
  return static_cast<Guarded<LogitsFn>*>(user)->call(Span<float>(logits, n_vocab));
}

inline int32_t on_logprobs(void* user, const blend_logprob* logprobs, size_t n) noexcept {
  return static_cast<Guarded<LogprobsFn>*>(user)->call(Span<const blend_logprob>(logprobs, n));
}

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

inline int32_t on_measurement(void* user, const blend_measurement* line) noexcept {
  return static_cast<Guarded<MeasurementFn>*>(user)->call(*line);
}

inline int32_t on_event(void* user, int32_t code, const char* message) noexcept {
  try {
    (*static_cast<const EventFn*>(user))(code, message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): see EventFn
  }
  return 0;
}

// Options with the callback of one call put in.
template <typename Options>
Options with_progress(const Options& options, const ProgressFn& fn, Guarded<ProgressFn>& guarded) {
  Options copy = options;
  if (fn) {
    copy.progress = &on_progress;
    copy.progress_user = &guarded;
  }
  return copy;
}

// Texts as C has them.
inline const char* c_string(const std::string& text, const std::string& what) {
  if (text.find('\0') == std::string::npos) return text.c_str();
  throw Error(BLEND_E_INVALID_ARGUMENT, 0, what + " has a NUL in it, which no text has");
}
// Null: not set.
inline const char* c_string(const std::optional<std::string>& text) noexcept {
  return text.has_value() ? text->c_str() : nullptr;
}
inline std::vector<const char*> c_strings(const std::vector<std::string>& documents) {
  std::vector<const char*> out;
  for (const std::string& document : documents) {
    out.push_back(c_string(document, "document " + std::to_string(out.size())));
  }
  return out;
}

// Closes a handle and keeps the event callback until then: background writes of a store, or a
// context kept alive by its models, may still send events while the handle closes.
template <typename T, void (*Close)(T*)>
struct Closer {
  std::shared_ptr<const EventFn> events;
  void operator()(T* handle) const noexcept { Close(handle); }
};

template <typename T, void (*Close)(T*)>
using Handle = std::unique_ptr<T, Closer<T, Close>>;

// A C struct that says something: it begins with its size and zeros.
template <typename C>
struct Sized : C {
  Sized() : C{} { this->struct_size = sizeof(C); }
};

// Options, at their defaults.
template <typename C, int32_t (*Init)(C*, size_t)>
struct Initialised : C {
  Initialised() : C{} { check(Init(this, sizeof(C))); }
};

}  // namespace detail

using ModelInfo = detail::Sized<blend_model_info>;
using StoreStat = detail::Sized<blend_store_stat>;
using StoreReport = detail::Sized<blend_store_report>;
using RemoteStat = detail::Sized<blend_remote_stat>;
using CodecStat = detail::Sized<blend_codec_stat>;
using FusionInfo = detail::Sized<blend_fusion_info>;
using FusionReport = detail::Sized<blend_fusion_report>;
using LayerInfo = detail::Sized<blend_layer_info>;
using SegmentInfo = detail::Sized<blend_segment_info>;

using ProfileInfo = detail::Sized<blend_profile_info>;
using Measurement = detail::Sized<blend_measurement>;
using Verdict = detail::Sized<blend_verdict>;

using RemoteOptions = detail::Initialised<blend_remote_options, blend_remote_options_init>;
// `remote` takes the place of the C member of that name; without a `url` there is no remote tier.
struct StoreOptions : detail::Initialised<blend_store_options, blend_store_options_init> {
  RemoteOptions remote;
};
using ModelDescription = detail::Initialised<blend_model_description, blend_model_description_init>;
// Built from pointers of the host; what they point at must outlive it.
using KvView = detail::Sized<blend_kv_view>;

using MachineInfo = detail::Sized<blend_machine_info>;
using AdviseOptions = detail::Initialised<blend_advise_options, blend_advise_options_init>;
using Storage = detail::Sized<blend_storage>;
using Advice = detail::Sized<blend_advice>;

// The functions below take the place of the C callback members, which stay null.
struct ContextOptions : detail::Initialised<blend_ctx_options, blend_ctx_options_init> {
  EventFn events;
};
struct ModelOptions : detail::Initialised<blend_model_options, blend_model_options_init> {
  ProgressFn on_progress;
};
struct FilterOptions : detail::Initialised<blend_filter_options, blend_filter_options_init> {
  std::optional<std::string> tenant;  // only its chunks; "" is the tenant without a name
};
using ChatOptions = detail::Initialised<blend_chat_options, blend_chat_options_init>;
using TextOptions = detail::Initialised<blend_text_options, blend_text_options_init>;
struct PrecomputeOptions
    : detail::Initialised<blend_precompute_options, blend_precompute_options_init> {
  ProgressFn on_progress;
};
struct CorpusOptions : detail::Initialised<blend_corpus_options, blend_corpus_options_init> {
  ProgressFn on_progress;
  CorpusRecordFn on_record;
};
struct TransferOptions : detail::Initialised<blend_transfer_options, blend_transfer_options_init> {
  ProgressFn on_progress;
};
struct MachineOptions : detail::Initialised<blend_machine_options, blend_machine_options_init> {
  ProgressFn on_progress;
};
using SelectionOptions = detail::Initialised<blend_selection_options, blend_selection_options_init>;
struct FuseOptions : detail::Initialised<blend_fuse_options, blend_fuse_options_init> {
  SelectionOptions selection;  // experimental; takes the place of the C member of that name
  ProgressFn on_progress;
  ScoreFn on_score;  // of BLEND_POLICY_CALLBACK
};

namespace detail {
// Before a C call takes them; copies of the options point to the selection of the first.
inline void point_to_selection(FuseOptions& options) {
  options.blend_fuse_options::selection = &options.selection;
}
}  // namespace detail

struct GenerateOptions : detail::Initialised<blend_generate_options, blend_generate_options_init> {
  LogitsFn on_logits;
  LogprobsFn on_logprobs;  // of every token, if top_logprobs > 0
};
struct CalibrateOptions
    : detail::Initialised<blend_calibrate_options, blend_calibrate_options_init> {
  MeasurementFn on_measurement;
  ProgressFn on_progress;
};
struct VerifyOptions : detail::Initialised<blend_verify_options, blend_verify_options_init> {
  MeasurementFn on_measurement;
  ProgressFn on_progress;
};

// A flag that stops the calls it was given to (the `cancel` member of their options). Every
// function is thread-safe; request() is async-signal-safe too.
class CancelToken {
 public:
  CancelToken() {
    detail::Outcome outcome;
    blend_cancel* raw = nullptr;
    outcome.check(blend_cancel_create(&raw, outcome.out()));
    handle_.reset(raw);
  }
  void request() const noexcept { blend_cancel_request(handle_.get()); }
  void reset() const noexcept { blend_cancel_reset(handle_.get()); }
  const blend_cancel* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<blend_cancel, blend_cancel_free> handle_;
};

// Owns the compute threads. Thread-safe.
class Context {
 public:
  explicit Context(const ContextOptions& options = ContextOptions()) {
    auto copy = static_cast<const blend_ctx_options&>(options);
    std::shared_ptr<const EventFn> events;
    if (options.events) {
      events = std::make_shared<const EventFn>(options.events);
      copy.on_event = &detail::on_event;
      copy.event_user = const_cast<EventFn*>(events.get());
    }
    detail::Outcome outcome;
    blend_ctx* raw = nullptr;
    outcome.check(blend_ctx_create(&raw, &copy, outcome.out()));
    handle_ = {raw, {std::move(events)}};
  }
  const blend_ctx* get() const noexcept { return handle_.get(); }
  // What computes and with what: "cpu (AVX-512, VNNI)", "cpu (NEON)", or "cuda:0 (NAME)".
  const char* backend() const noexcept { return blend_ctx_backend(handle_.get()); }
  const std::shared_ptr<const EventFn>& events() const noexcept {
    return handle_.get_deleter().events;
  }

 private:
  detail::Handle<blend_ctx, blend_ctx_close> handle_;
};

// A chunk's identity, comparable and printable.
struct ChunkId : blend_chunk_id {
  ChunkId() : blend_chunk_id{} {}
  ChunkId(const blend_chunk_id& id) : blend_chunk_id(id) {}  // NOLINT: the same thing
  // Throws INVALID_ARGUMENT unless `hex` is 64 hexadecimal digits.
  static ChunkId from_hex(const std::string& hex) {
    detail::Outcome outcome;
    ChunkId id;
    outcome.check(blend_chunk_id_from_hex(&id, hex.c_str(), outcome.out()));
    return id;
  }
  std::string hex() const {
    char text[65] = {};
    blend_chunk_id_to_hex(this, text);
    return text;
  }
  friend bool operator==(const ChunkId& a, const ChunkId& b) noexcept {
    for (size_t i = 0; i < sizeof a.bytes; ++i) {
      if (a.bytes[i] != b.bytes[i]) return false;
    }
    return true;
  }
  friend bool operator!=(const ChunkId& a, const ChunkId& b) noexcept { return !(a == b); }
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
    handle_ = {raw, {ctx.events()}};
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
    outcome.check(blend_store_set_label(get(), &id, detail::c_string(tenant), label, tags,
                                        outcome.out()));
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
    detail::Outcome outcome;
    Storage storage;
    outcome.check(blend_store_remote_measure(get(), &storage, outcome.out()));
    return storage;
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
  StoreStat stat() const {
    detail::Outcome outcome;
    StoreStat stat;
    outcome.check(blend_store_get_stat(get(), &stat, outcome.out()));
    return stat;
  }
  StoreReport report() const {
    detail::Outcome outcome;
    StoreReport report;
    outcome.check(blend_store_get_report(get(), &report, outcome.out()));
    return report;
  }
  RemoteStat remote_stat() const {
    detail::Outcome outcome;
    RemoteStat stat;
    outcome.check(blend_store_get_remote_stat(get(), &stat, outcome.out()));
    return stat;
  }
  CodecStat codec_stat(uint32_t codec) const {
    detail::Outcome outcome;
    CodecStat stat;
    outcome.check(blend_store_get_codec_stat(get(), codec, &stat, outcome.out()));
    return stat;
  }
  const blend_store* get() const noexcept { return handle_.get(); }
  const std::shared_ptr<const EventFn>& events() const noexcept {
    return handle_.get_deleter().events;
  }

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

// One text of a corpus.
struct CorpusChunk {
  Tokens tokens;
  std::optional<std::string> label, tags;
};

struct Precomputed {
  ChunkId id;
  bool existed = false;  // it was in the store already: nothing was computed
};

// Weights, tokenizer and description of one model. Immutable, thread-safe.
class Model {
 public:
  Model(const Context& ctx, const std::string& path, const ModelOptions& options = ModelOptions()) {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const ModelOptions copy = detail::with_progress(options, options.on_progress, guarded);
    blend_model* raw = nullptr;
    outcome.check(blend_model_open(&raw, ctx.get(), path.c_str(), &copy, outcome.out()));
    handle_ = {raw, {ctx.events()}};
  }
  // A model that the host runs itself (blend_model_create_from_description): for
  // put_chunk, find_chunk and Layerwise.
  Model(const Context& ctx, const ModelDescription& description) {
    detail::Outcome outcome;
    blend_model* raw = nullptr;
    outcome.check(
        blend_model_create_from_description(&raw, ctx.get(), &description, outcome.out()));
    handle_ = {raw, {ctx.events()}};
  }
  // The strings in it are valid while the model is open.
  ModelInfo info() const {
    detail::Outcome outcome;
    ModelInfo info;
    outcome.check(blend_model_get_info(get(), &info, outcome.out()));
    return info;
  }
  // `flags` are BLEND_TOKENIZE_*.
  Tokens tokenize(std::string_view text, uint32_t flags = 0) const {
    detail::Outcome outcome;
    // One token a byte, BOS and the leading space: enough at the first try, nearly always.
    Tokens tokens(text.size() + 2);
    size_t n = 0;
    int32_t code = blend_model_tokenize(get(), text.data(), text.size(), flags, tokens.data(),
                                        tokens.size(), &n, outcome.out());
    if (code == BLEND_E_BUFFER_TOO_SMALL) {
      detail::Outcome again;
      tokens.resize(n);
      again.check(blend_model_tokenize(get(), text.data(), text.size(), flags, tokens.data(),
                                       tokens.size(), &n, again.out()));
      code = BLEND_OK;
    }
    outcome.check(code);
    tokens.resize(n);
    return tokens;
  }
  std::string detokenize(const Tokens& tokens, uint32_t flags = 0) const {
    detail::Outcome outcome;
    std::string text(tokens.size() * 8 + 16, '\0');
    size_t n = 0;
    int32_t code = blend_model_detokenize(get(), tokens.data(), tokens.size(), flags, text.data(),
                                          text.size(), &n, outcome.out());
    if (code == BLEND_E_BUFFER_TOO_SMALL) {
      detail::Outcome again;
      text.resize(n);
      again.check(blend_model_detokenize(get(), tokens.data(), tokens.size(), flags, text.data(),
                                         text.size(), &n, again.out()));
      code = BLEND_OK;
    }
    outcome.check(code);
    text.resize(n);
    return text;
  }
  // Stores the chunks of a corpus so that they serve each other as context
  // (blend_precompute_corpus). False: all of it was there.
  bool precompute_corpus(const Store& store, const std::vector<CorpusChunk>& chunks,
                         const CorpusOptions& options = CorpusOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    detail::Guarded<CorpusRecordFn> records{options.on_record, outcome};
    CorpusOptions copy = detail::with_progress(options, options.on_progress, guarded);
    if (options.on_record) {
      static_cast<blend_corpus_options&>(copy).on_record = &detail::on_corpus_record;
      copy.record_user = &records;
    }
    std::vector<blend_corpus_chunk> list(chunks.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const CorpusChunk& chunk = chunks[i];
      list[i].struct_size = sizeof list[i];
      list[i].tokens = chunk.tokens.data();
      list[i].n_tokens = chunk.tokens.size();
      list[i].label = chunk.label.has_value() ? chunk.label->c_str() : nullptr;
      list[i].tags = chunk.tags.has_value() ? chunk.tags->c_str() : nullptr;
    }
    return outcome.check(blend_precompute_corpus(get(), store.get(), list.data(), list.size(),
                                                 &copy, outcome.out())) != BLEND_EXISTS;
  }
  // Stores documents for prompts that are made of them as text (blend_precompute_texts). False: all
  // of it was there.
  bool precompute_texts(const Store& store, const std::vector<std::string>& documents,
                        const TextOptions& texts = TextOptions(),
                        const CorpusOptions& options = CorpusOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    detail::Guarded<CorpusRecordFn> records{options.on_record, outcome};
    CorpusOptions copy = detail::with_progress(options, options.on_progress, guarded);
    if (options.on_record) {
      static_cast<blend_corpus_options&>(copy).on_record = &detail::on_corpus_record;
      copy.record_user = &records;
    }
    const std::vector<const char*> list = detail::c_strings(documents);
    return outcome.check(blend_precompute_texts(get(), store.get(), list.data(), list.size(),
                                                &texts, &copy, outcome.out())) != BLEND_EXISTS;
  }
  // Prefills one chunk and stores it; on disk when it returns.
  Precomputed precompute(const Store& store, const Tokens& tokens,
                         const PrecomputeOptions& options = PrecomputeOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const PrecomputeOptions copy = detail::with_progress(options, options.on_progress, guarded);
    Precomputed result;
    const int32_t code = outcome.check(blend_precompute(
        get(), store.get(), tokens.data(), tokens.size(), &copy, &result.id, outcome.out()));
    result.existed = code == BLEND_EXISTS;
    return result;
  }
  // At most n check layers whose ratios fall and have the mean `ratio`: gradual filtering.
  std::vector<blend_check_layer> default_check_layers(double ratio, uint32_t first_layer,
                                                      size_t n) const {
    detail::Outcome outcome;
    std::vector<blend_check_layer> out(n);
    outcome.check(
        blend_model_default_check_layers(get(), ratio, first_layer, out.data(), &n, outcome.out()));
    out.resize(n);
    return out;
  }
  // Stores a chunk whose K and V the host computed: layers [n_layers], each the rows of `tokens` at
  // the positions first_position, first_position + 1, ...
  ChunkId put_chunk(const Store& store, const Tokens& tokens, const std::vector<KvView>& layers,
                 uint32_t first_position,
                 const PrecomputeOptions& options = PrecomputeOptions()) const {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const PrecomputeOptions copy = detail::with_progress(options, options.on_progress, guarded);
    ChunkId id;
    outcome.check(blend_chunk_put(get(), store.get(), tokens.data(), tokens.size(), layers.data(),
                                  layers.size(), first_position, &copy, &id, outcome.out()));
    return id;
  }
  // Whether the store holds a chunk; its id goes to *id, if wanted, either way.
  bool find_chunk(const Store& store, const Tokens& tokens,
            const PrecomputeOptions& options = PrecomputeOptions(), ChunkId* id = nullptr) const {
    detail::Outcome outcome;
    const int32_t code = blend_chunk_find(get(), store.get(), tokens.data(), tokens.size(),
                                          &options, id, outcome.out());
    if (code == BLEND_E_NOT_FOUND) return false;
    outcome.check(code);
    return true;
  }
  const blend_model* get() const noexcept { return handle_.get(); }
  const std::shared_ptr<const EventFn>& events() const noexcept {
    return handle_.get_deleter().events;
  }

 private:
  detail::Handle<blend_model, blend_model_close> handle_;
};

inline void Store::fidelity(const Model& model, const FidelityFn& fn,
                            double agreement_target) const {
  fidelity_of(model.get(), fn, agreement_target);
}

// How fast this machine prefills a model. Immutable, thread-safe.
class Machine {
 public:
  // `path`: the file that keeps the measurement; empty: nothing is kept.
  Machine(const Model& model, const std::string& path,
          const MachineOptions& options = MachineOptions()) {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const MachineOptions copy = detail::with_progress(options, options.on_progress, guarded);
    blend_machine* raw = nullptr;
    kept_ =
        outcome.check(blend_machine_open(&raw, model.get(), path.empty() ? nullptr : path.c_str(),
                                         &copy, outcome.out())) == BLEND_EXISTS;
    handle_ = {raw, {model.events()}};
  }
  bool kept() const noexcept { return kept_; }  // it was in the file: nothing was measured
  // The string in it is valid while the machine is open.
  MachineInfo info() const {
    detail::Outcome outcome;
    MachineInfo info;
    outcome.check(blend_machine_get_info(get(), &info, outcome.out()));
    return info;
  }
  // Tokens and nanoseconds of one measured length.
  std::pair<uint64_t, uint64_t> point(uint64_t index) const {
    detail::Outcome outcome;
    std::pair<uint64_t, uint64_t> point;
    outcome.check(
        blend_machine_get_point(get(), index, &point.first, &point.second, outcome.out()));
    return point;
  }
  uint64_t recompute_ns(uint64_t n_tokens, double ratio) const {
    detail::Outcome outcome;
    uint64_t ns = 0;
    outcome.check(blend_machine_get_recompute_ns(get(), n_tokens, ratio, &ns, outcome.out()));
    return ns;
  }
  // One advice a storage.
  std::vector<Advice> advise(const std::vector<Storage>& storages,
                             const AdviseOptions& options = AdviseOptions()) const {
    detail::Outcome outcome;
    std::vector<Advice> advice(storages.size());
    outcome.check(blend_machine_advise(get(), storages.data(), storages.size(), &options,
                                       advice.data(), outcome.out()));
    return advice;
  }
  const blend_machine* get() const noexcept { return handle_.get(); }

 private:
  bool kept_ = false;
  detail::Handle<blend_machine, blend_machine_close> handle_;
};

// The segments of one prompt, in order. Owns the tokens. Not thread-safe.
class Prompt {
 public:
  Prompt& prefix(Tokens tokens) { return add(BLEND_SEGMENT_PREFIX, std::move(tokens)); }
  Prompt& chunk(Tokens tokens) { return add(BLEND_SEGMENT_CHUNK, std::move(tokens)); }
  Prompt& chunk(const ChunkId& id) {
    add(BLEND_SEGMENT_CHUNK, {});
    parts_.back().id = id;
    parts_.back().by_id = true;
    return *this;
  }
  Prompt& text(Tokens tokens) { return add(BLEND_SEGMENT_TEXT, std::move(tokens)); }
  Prompt& question(Tokens tokens) { return add(BLEND_SEGMENT_QUESTION, std::move(tokens)); }
  // kind: BLEND_SEGMENT_*.
  Prompt& add(uint32_t kind, Tokens tokens) {
    parts_.emplace_back();
    parts_.back().kind = kind;
    parts_.back().tokens = std::move(tokens);
    return *this;
  }

  size_t size() const noexcept { return parts_.size(); }
  // What stands before the first chunk: chunks are precomputed after it.
  Tokens head() const {
    Tokens out;
    for (const Part& part : parts_) {
      if (part.kind == BLEND_SEGMENT_CHUNK) return out;
      out.insert(out.end(), part.tokens.begin(), part.tokens.end());
    }
    return {};
  }
  // Counts the segments that were given as tokens.
  size_t n_tokens() const noexcept {
    size_t n = 0;
    for (const Part& part : parts_) n += part.tokens.size();
    return n;
  }
  // Valid until the prompt changes.
  std::vector<blend_segment> segments() const {
    std::vector<blend_segment> out(parts_.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const Part& part = parts_[i];
      out[i].struct_size = sizeof out[i];
      out[i].kind = part.kind;
      out[i].tokens = part.by_id ? nullptr : part.tokens.data();
      out[i].n_tokens = part.tokens.size();
      out[i].id = part.by_id ? &part.id : nullptr;
    }
    return out;
  }

 private:
  struct Part {
    uint32_t kind = 0;
    bool by_id = false;
    Tokens tokens;
    ChunkId id;
  };
  std::vector<Part> parts_;
};

struct ChatMessage {
  std::string role;
  std::string content;
};

// By its text, or a stored chunk by its id.
struct ChatDocument {
  ChatDocument() = default;
  ChatDocument(std::string text_, std::string title_ = {})  // NOLINT(google-explicit-constructor)
      : text(std::move(text_)), title(std::move(title_)) {}
  ChatDocument(const ChunkId& id_) : id(id_), by_id(true) {}  // NOLINT(google-explicit-constructor)
  std::string text;
  std::string title;
  ChunkId id;
  bool by_id = false;
};

// A conversation as the model's chat template puts it; see blend_chat_render.
struct Chat {
  Prompt prompt;
  std::string text;
};

namespace detail {

// Copies what was rendered, and closes it.
inline Chat taken_chat(blend_chat* raw) {
  const Handle<blend_chat, blend_chat_close> handle(raw, {nullptr});
  Outcome outcome;
  const blend_segment* segments = nullptr;
  const char* text = nullptr;
  size_t n = 0;
  Chat chat;
  outcome.check(blend_chat_get_segments(raw, &segments, &n, outcome.out()));
  for (size_t i = 0; i < n; ++i) {
    const blend_segment& s = segments[i];
    if (s.id != nullptr) {
      chat.prompt.chunk(ChunkId(*s.id));
    } else {
      chat.prompt.add(s.kind, Tokens(s.tokens, s.tokens + s.n_tokens));
    }
  }
  outcome.check(blend_chat_get_text(raw, &text, &n, outcome.out()));
  chat.text.assign(text, n);
  return chat;
}

// Messages as C has them; they must outlive what is made.
inline std::vector<blend_chat_message> c_messages(const std::vector<ChatMessage>& messages) {
  std::vector<blend_chat_message> turns(messages.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    turns[i].struct_size = sizeof turns[i];
    turns[i].role = messages[i].role.c_str();
    turns[i].content = messages[i].content.data();
    turns[i].content_bytes = messages[i].content.size();
  }
  return turns;
}

}  // namespace detail

inline Chat render_chat(const Model& model, const std::vector<ChatMessage>& messages,
                        const std::vector<ChatDocument>& documents = {},
                        const ChatOptions& options = ChatOptions()) {
  const std::vector<blend_chat_message> turns = detail::c_messages(messages);
  std::vector<blend_chat_document> given(documents.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const ChatDocument& document = documents[i];
    given[i].struct_size = sizeof given[i];
    given[i].title = document.title.c_str();
    given[i].text = document.by_id ? nullptr : document.text.data();
    given[i].text_bytes = document.by_id ? 0 : document.text.size();
    given[i].id = document.by_id ? &document.id : nullptr;
  }
  detail::Outcome outcome;
  blend_chat* raw = nullptr;
  outcome.check(blend_chat_render(&raw, model.get(), turns.data(), turns.size(), given.data(),
                                  given.size(), &options, outcome.out()));
  return detail::taken_chat(raw);
}

// Documents and a question as blend_fuse_texts puts them; see blend_chat_render_texts.
inline Chat render_texts(const Model& model, const std::vector<std::string>& documents,
                         const std::string& question, const TextOptions& options = TextOptions()) {
  const std::vector<const char*> list = detail::c_strings(documents);
  detail::Outcome outcome;
  blend_chat* raw = nullptr;
  outcome.check(blend_chat_render_texts(&raw, model.get(), list.data(), list.size(),
                                        detail::c_string(question, "the question"), &options,
                                        outcome.out()));
  return detail::taken_chat(raw);
}

// What calibration found out about one model. Immutable, thread-safe; must be open as long as
// options that it was applied to are used.
class Profile {
 public:
  // An empty path: the one beside the model (blend_profile_open). Throws NOT_FOUND where none is.
  explicit Profile(const Model& model, const std::string& path = {}) {
    detail::Outcome outcome;
    blend_profile* raw = nullptr;
    outcome.check(blend_profile_open(&raw, model.get(), path.empty() ? nullptr : path.c_str(),
                                     outcome.out()));
    handle_ = {raw, {model.events()}};
  }
  // What it points to is valid while the profile is open.
  ProfileInfo info() const {
    detail::Outcome outcome;
    ProfileInfo info;
    outcome.check(blend_profile_get_info(get(), &info, outcome.out()));
    return info;
  }
  // What chunks are to be prefilled after.
  Tokens chunk_prefix() const {
    const ProfileInfo i = info();
    return Tokens(i.chunk_prefix, i.chunk_prefix + i.n_chunk_prefix);
  }
  Measurement measurement(size_t index) const {
    detail::Outcome outcome;
    Measurement line;
    outcome.check(blend_profile_get_measurement(get(), index, &line, outcome.out()));
    return line;
  }
  // Shares of the squared drift of K and V that the map of `layer` took away where it was fitted.
  std::pair<double, double> drift(uint32_t layer) const {
    detail::Outcome outcome;
    std::pair<double, double> shares{0, 0};
    outcome.check(
        blend_profile_get_drift(get(), layer, &shares.first, &shares.second, outcome.out()));
    return shares;
  }
  // Sets policy, ratio, chunk prefix and profile; metric and check layer then follow the profile.
  void apply(FuseOptions& options) const {
    detail::Outcome outcome;
    outcome.check(blend_profile_apply(get(), &options, outcome.out()));
  }
  // [n_layers], or empty: all layers alike.
  std::vector<float> layer_steps() const {
    const ProfileInfo i = info();
    return std::vector<float>(i.layer_steps, i.layer_steps + i.n_layer_steps);
  }
  const blend_profile* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<blend_profile, blend_profile_close> handle_;
};

inline void Store::set_codec_profile(const Profile& profile) const {
  detail::Outcome outcome;
  outcome.check(blend_store_set_codec_profile(get(), profile.get(), outcome.out()));
}

namespace detail {

// The C form of sample prompts; valid while they are.
class Samples {
 public:
  explicit Samples(const std::vector<Prompt>& prompts) {
    for (const Prompt& prompt : prompts) segments_.push_back(prompt.segments());
    for (const auto& list : segments_) {
      blend_sample sample{};
      sample.struct_size = sizeof sample;
      sample.segments = list.data();
      sample.n_segments = list.size();
      samples_.push_back(sample);
    }
  }
  const blend_sample* data() const noexcept { return samples_.data(); }
  size_t size() const noexcept { return samples_.size(); }

 private:
  std::vector<std::vector<blend_segment>> segments_;
  std::vector<blend_sample> samples_;
};

}  // namespace detail

// Measures sample prompts and writes a profile to `path` (empty: beside the model). False: written,
// but no ratio kept the limits.
inline bool calibrate(const Model& model, const std::vector<Prompt>& samples,
                      const std::string& path,
                      const CalibrateOptions& options = CalibrateOptions()) {
  detail::Outcome outcome;
  const detail::Samples list(samples);
  detail::Guarded<ProgressFn> progress{options.on_progress, outcome};
  detail::Guarded<MeasurementFn> lines{options.on_measurement, outcome};
  CalibrateOptions copy = detail::with_progress(options, options.on_progress, progress);
  if (options.on_measurement) {
    static_cast<blend_calibrate_options&>(copy).on_measurement = &detail::on_measurement;
    copy.measurement_user = &lines;
  }
  return outcome.check(blend_calibrate(model.get(), list.data(), list.size(), &copy,
                                       path.empty() ? nullptr : path.c_str(), outcome.out())) !=
         BLEND_BELOW_LIMITS;
}

// Measures a profile on samples that it was not made from.
inline Verdict verify(const Model& model, const Profile& profile,
                      const std::vector<Prompt>& samples,
                      const VerifyOptions& options = VerifyOptions()) {
  detail::Outcome outcome;
  const detail::Samples list(samples);
  detail::Guarded<ProgressFn> progress{options.on_progress, outcome};
  detail::Guarded<MeasurementFn> lines{options.on_measurement, outcome};
  VerifyOptions copy = detail::with_progress(options, options.on_progress, progress);
  if (options.on_measurement) {
    static_cast<blend_verify_options&>(copy).on_measurement = &detail::on_measurement;
    copy.measurement_user = &lines;
  }
  Verdict verdict;
  outcome.check(blend_verify(model.get(), profile.get(), list.data(), list.size(), &copy, &verdict,
                             outcome.out()));
  return verdict;
}

struct Generated {
  size_t n_tokens = 0;
  bool by_stop_token = false;  // ended by EOS, a stop token or a stop text
  bool by_callback = false;    // ended because the callback returned false
};

// One prompt's fused KV cache and the logits of its last row. Exclusive use for decode, generate,
// make_exact, replace, erase, extend and destruction; the const functions may run concurrently with
// each other.
class Fusion {
 public:
  // `store` may be null with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE.
  Fusion(const Model& model, const Store* store, const Prompt& prompt,
         const FuseOptions& options = FuseOptions()) {
    blend_fusion* raw = nullptr;
    with_arguments(prompt, options, [&](const auto& segments, const auto& o, auto& outcome) {
      outcome.check(blend_fuse(&raw, model.get(), store == nullptr ? nullptr : store->get(),
                               segments.data(), segments.size(), &o, outcome.out()));
    });
    handle_ = {raw, {model.events()}};
  }
  // Fuses documents and a question as text; see blend_fuse_texts. `store` may be null: all is
  // computed. `options` in the place of the member `fuse` of `texts`.
  Fusion(const Model& model, const Store* store, const std::vector<std::string>& documents,
         const std::string& question, const TextOptions& texts = TextOptions(),
         const FuseOptions& options = FuseOptions()) {
    const std::vector<const char*> list = detail::c_strings(documents);
    const char* const asked = detail::c_string(question, "the question");
    blend_fusion* raw = nullptr;
    with_options(options, [&](const auto& o, auto& outcome) {
      TextOptions copy = texts;
      copy.fuse = &o;
      outcome.check(blend_fuse_texts(&raw, model.get(), store == nullptr ? nullptr : store->get(),
                                     list.data(), list.size(), asked, &copy, outcome.out()));
    });
    handle_ = {raw, {model.events()}};
  }
  // The same of a conversation; see blend_fuse_messages.
  Fusion(const Model& model, const Store* store, const std::vector<ChatMessage>& messages,
         const std::vector<std::string>& documents, const TextOptions& texts = TextOptions(),
         const FuseOptions& options = FuseOptions()) {
    const std::vector<const char*> list = detail::c_strings(documents);
    const std::vector<blend_chat_message> turns = detail::c_messages(messages);
    blend_fusion* raw = nullptr;
    with_options(options, [&](const auto& o, auto& outcome) {
      TextOptions copy = texts;
      copy.fuse = &o;
      outcome.check(blend_fuse_messages(
          &raw, model.get(), store == nullptr ? nullptr : store->get(), turns.data(), turns.size(),
          list.data(), list.size(), &copy, outcome.out()));
    });
    handle_ = {raw, {model.events()}};
  }
  // Brings back what save() kept. See blend_fusion_restore. `cancel` may be null.
  static Fusion restore(const Model& model, const Store& store, const ChunkId& id,
                        const std::string& tenant = {}, uint32_t reserve_tokens = 256,
                        const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    blend_fusion* raw = nullptr;
    outcome.check(blend_fusion_restore(&raw, model.get(), store.get(), &id, tenant.c_str(),
                                       reserve_tokens, cancel, outcome.out()));
    Fusion fusion;
    fusion.handle_ = {raw, {model.events()}};
    return fusion;
  }
  // A second fusion with what this one has now, for several answers to one prompt. See
  // blend_fusion_fork.
  Fusion fork() {
    detail::Outcome outcome;
    blend_fusion* raw = nullptr;
    outcome.check(blend_fusion_fork(&raw, handle_.get(), outcome.out()));
    Fusion fusion;
    fusion.handle_ = {raw, handle_.get_deleter()};
    return fusion;
  }
  // Fuses a further turn after the rows there are. See blend_fusion_extend.
  void extend(const Store* store, const Prompt& prompt,
              const FuseOptions& options = FuseOptions()) {
    with_arguments(prompt, options, [&](const auto& segments, const auto& o, auto& outcome) {
      outcome.check(blend_fusion_extend(handle_.get(), store == nullptr ? nullptr : store->get(),
                                        segments.data(), segments.size(), &o, outcome.out()));
    });
  }
  // Keeps K and V in the store, written in the background. See blend_fusion_save.
  ChunkId save(const Store& store, const std::string& tenant = {},
               const blend_cancel* cancel = nullptr) const {
    detail::Outcome outcome;
    ChunkId id;
    outcome.check(
        blend_fusion_save(get(), store.get(), tenant.c_str(), cancel, &id, outcome.out()));
    return id;
  }
  FusionInfo info() const {
    detail::Outcome outcome;
    FusionInfo info;
    outcome.check(blend_fusion_get_info(get(), &info, outcome.out()));
    return info;
  }
  FusionReport report() const {
    detail::Outcome outcome;
    FusionReport report;
    outcome.check(blend_fusion_get_report(get(), &report, outcome.out()));
    return report;
  }
  LayerInfo layer(uint32_t layer) const {
    detail::Outcome outcome;
    LayerInfo info;
    outcome.check(blend_fusion_get_layer(get(), layer, &info, outcome.out()));
    return info;
  }
  SegmentInfo segment(size_t segment) const {
    detail::Outcome outcome;
    SegmentInfo info;
    outcome.check(blend_fusion_get_segment(get(), segment, &info, outcome.out()));
    return info;
  }
  // Valid while the fusion is open.
  Span<const uint32_t> selected() const {
    detail::Outcome outcome;
    const uint32_t* rows = nullptr;
    size_t n = 0;
    outcome.check(blend_fusion_get_selected(get(), &rows, &n, outcome.out()));
    return {rows, n};
  }
  // Valid while the fusion is open.
  Span<const float> deviation() const {
    detail::Outcome outcome;
    const float* values = nullptr;
    size_t n = 0;
    outcome.check(blend_fusion_get_deviation(get(), &values, &n, outcome.out()));
    return {values, n};
  }
  // Tokens of all rows there are now; valid until the next decode, generate, replace, erase or
  // destruction.
  Span<const int32_t> tokens() const {
    detail::Outcome outcome;
    const int32_t* values = nullptr;
    size_t n = 0;
    outcome.check(blend_fusion_get_tokens(get(), &values, &n, outcome.out()));
    return {values, n};
  }
  // The last row's; valid as long as tokens() is.
  Span<const float> logits() const {
    detail::Outcome outcome;
    const float* values = nullptr;
    size_t n = 0;
    outcome.check(blend_fusion_get_logits(get(), &values, &n, outcome.out()));
    return {values, n};
  }
  // Replaces K and V by full prefill's and appends those of `tokens` that greedy decoding gives;
  // returns how many. See blend_fusion_make_exact. `cancel` may be null.
  size_t make_exact(const Tokens& tokens = {}, const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    size_t n_kept = 0;
    outcome.check(blend_fusion_make_exact(handle_.get(), tokens.data(), tokens.size(), &n_kept,
                                          cancel, outcome.out()));
    return n_kept;
  }
  // `cancel` may be null.
  void decode(const Tokens& tokens, const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    outcome.check(
        blend_fusion_decode(handle_.get(), tokens.data(), tokens.size(), cancel, outcome.out()));
  }
  // Replaces n_rows rows by tokens; the rows after them are rotated to their new positions, not
  // computed again. See blend_fusion_replace. `cancel` may be null.
  void replace(uint64_t first_row, uint64_t n_rows, const Tokens& tokens,
               const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    outcome.check(blend_fusion_replace(handle_.get(), first_row, n_rows, tokens.data(),
                                       tokens.size(), cancel, outcome.out()));
  }
  void erase(uint64_t first_row, uint64_t n_rows, const blend_cancel* cancel = nullptr) {
    detail::Outcome outcome;
    outcome.check(blend_fusion_erase(handle_.get(), first_row, n_rows, cancel, outcome.out()));
  }
  // One generation of generate_batch(). `fusion` is not null.
  struct Request;
  struct Outcome;
  // Generates for several fusions on this thread; see blend_generate_batch. Throws what fails the
  // whole call, and, when all have ended, what a callback threw.
  static std::vector<Outcome> generate_batch(const std::vector<Request>& requests);

  // `fn` may be empty. A callback that returns false ends the generation without an error.
  Generated generate(const GenerateOptions& options, const TokenFn& fn) {
    detail::Outcome outcome;
    Stream stream(options, fn, outcome);
    Generated result;
    const int32_t code =
        blend_fusion_generate(handle_.get(), &stream.options, fn ? &on_token : nullptr, &stream,
                              &result.n_tokens, outcome.out());
    result.by_callback = code == BLEND_E_CALLBACK && !outcome.thrown;
    result.by_stop_token = code == BLEND_STOPPED;
    if (!result.by_callback) outcome.check(code);
    return result;
  }
  const blend_fusion* get() const noexcept { return handle_.get(); }

 private:
  // The callbacks of one generation, guarded, and options that have them.
  struct Stream {
    Stream(const GenerateOptions& of, const TokenFn& token_fn, detail::Outcome& its)
        : fn(token_fn),
          outcome(its),
          logits{of.on_logits, its},
          logprobs{of.on_logprobs, its},
          options(of) {
      if (of.on_logits) {
        options.logits = &detail::on_logits;
        options.logits_user = &logits;
      }
      if (of.on_logprobs) {
        options.logprobs = &detail::on_logprobs;
        options.logprobs_user = &logprobs;
      }
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    const TokenFn& fn;
    detail::Outcome& outcome;
    detail::Guarded<LogitsFn> logits;
    detail::Guarded<LogprobsFn> logprobs;
    blend_generate_options options;
  };
  static int32_t on_token(void* user, int32_t token, const char* text, size_t bytes) noexcept {
    auto* stream = static_cast<Stream*>(user);
    detail::Guarded<TokenFn> guarded{stream->fn, stream->outcome};
    return guarded.call(token, std::string_view(text, bytes));
  }
  friend class Batch;
  Fusion() = default;
  // Calls `call(segments, options, outcome)` with the callbacks of `options` guarded.
  template <typename Call>
  static void with_arguments(const Prompt& prompt, const FuseOptions& options, Call call) {
    with_options(options,
                 [&](const auto& copy, auto& outcome) { call(prompt.segments(), copy, outcome); });
  }
  // The same without segments.
  template <typename Call>
  static void with_options(const FuseOptions& options, Call call) {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    FuseOptions copy = detail::with_progress(options, options.on_progress, guarded);
    detail::Guarded<ScoreFn> guarded_score{options.on_score, outcome};
    if (options.on_score) {
      copy.selection.score = &detail::on_score;
      copy.selection.score_user = &guarded_score;
    }
    detail::point_to_selection(copy);
    call(copy, outcome);
  }

  detail::Handle<blend_fusion, blend_fusion_close> handle_;
};

struct Fusion::Request {
  Fusion* fusion = nullptr;
  GenerateOptions options;
  TokenFn fn;  // may be empty
};

// What became of one of them: `error` is set where it failed.
struct Fusion::Outcome {
  Generated generated;
  std::unique_ptr<Error> error;
};

inline std::vector<Fusion::Outcome> Fusion::generate_batch(const std::vector<Request>& requests) {
  const size_t n = requests.size();
  if (n == 0) return {};
  std::vector<detail::Outcome> own(n);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<blend_generate_request> list(n);
  for (size_t i = 0; i < n; ++i) {
    const Request& request = requests[i];
    streams.push_back(std::make_unique<Stream>(request.options, request.fn, own[i]));
    list[i].struct_size = sizeof list[i];
    list[i].fusion = request.fusion->handle_.get();
    list[i].options = &streams[i]->options;
    list[i].fn = request.fn ? &on_token : nullptr;
    list[i].user = streams[i].get();
  }
  std::vector<int32_t> codes(n);
  std::vector<size_t> n_tokens(n);
  std::vector<blend_error*> errors(n, nullptr);
  std::vector<Outcome> results(n);
  detail::Outcome outcome;
  const int32_t code = blend_generate_batch(codes.data(), n_tokens.data(), errors.data(),
                                            list.data(), n, outcome.out());
  for (size_t i = 0; i < n; ++i) {
    Generated& generated = results[i].generated;
    generated.n_tokens = n_tokens[i];
    generated.by_stop_token = codes[i] == BLEND_STOPPED;
    generated.by_callback = codes[i] == BLEND_E_CALLBACK && !own[i].thrown;
    if (errors[i] != nullptr && !generated.by_callback) {
      results[i].error =
          std::make_unique<Error>(blend_error_code(errors[i]), blend_error_detail(errors[i]),
                                  blend_error_message(errors[i]));
    }
    blend_error_free(errors[i]);
  }
  for (const detail::Outcome& one : own) {
    if (one.thrown) std::rethrow_exception(one.thrown);
  }
  outcome.check(code);
  return results;
}

// Prompts that are fused together, so that chunks which they share are loaded once. See
// blend_fuse_batch. Not thread-safe.
class Batch {
 public:
  // Options with callbacks or pointers: as for a Fusion; what they point at must outlive fuse().
  Batch& add(const Prompt& prompt, const FuseOptions& options = FuseOptions()) {
    requests_.push_back({prompt, options});
    return *this;
  }
  size_t size() const noexcept { return requests_.size(); }

  // What became of one prompt: a fusion, or why there is none.
  struct Outcome {
    std::unique_ptr<Fusion> fusion;
    std::unique_ptr<Error> error;
  };
  // `store` may be null as for a Fusion. Throws what fails the whole batch, and what a callback
  // threw. Without requests it does nothing.
  std::vector<Outcome> fuse(const Model& model, const Store* store) const {
    const size_t n = requests_.size();
    if (n == 0) return {};
    detail::Outcome outcome;
    std::vector<std::unique_ptr<Callbacks>> callbacks;
    std::vector<FuseOptions> options;
    std::vector<std::vector<blend_segment>> segments;
    std::vector<blend_fuse_request> list(n);
    options.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      callbacks.push_back(std::make_unique<Callbacks>(requests_[i].options, outcome));
      options.push_back(callbacks.back()->put_in(requests_[i].options));
      detail::point_to_selection(options.back());
      segments.push_back(requests_[i].prompt.segments());
      list[i].struct_size = sizeof list[i];
      list[i].segments = segments[i].data();
      list[i].n_segments = segments[i].size();
      list[i].options = &options[i];
    }
    std::vector<blend_fusion*> fusions(n, nullptr);
    std::vector<blend_error*> errors(n, nullptr);
    std::vector<Outcome> results(n);
    const int32_t code =
        blend_fuse_batch(fusions.data(), errors.data(), model.get(),
                         store == nullptr ? nullptr : store->get(), list.data(), n, outcome.out());
    for (size_t i = 0; i < n; ++i) {
      if (fusions[i] != nullptr) {
        results[i].fusion.reset(new Fusion());
        results[i].fusion->handle_ = {fusions[i], {model.events()}};
      }
      if (errors[i] != nullptr) {
        results[i].error =
            std::make_unique<Error>(blend_error_code(errors[i]), blend_error_detail(errors[i]),
                                    blend_error_message(errors[i]));
        blend_error_free(errors[i]);
      }
    }
    outcome.check(code);
    return results;
  }

 private:
  struct Request {
    Prompt prompt;
    FuseOptions options;
  };
  // The functions of one request's options, guarded.
  struct Callbacks {
    Callbacks(const FuseOptions& options, detail::Outcome& outcome)
        : progress{options.on_progress, outcome}, score{options.on_score, outcome} {}
    FuseOptions put_in(const FuseOptions& options) {
      FuseOptions copy = detail::with_progress(options, options.on_progress, progress);
      if (options.on_score) {
        copy.selection.score = &detail::on_score;
        copy.selection.score_user = &score;
      }
      return copy;
    }
    detail::Guarded<ProgressFn> progress;
    detail::Guarded<ScoreFn> score;
  };
  std::vector<Request> requests_;
};

// A prompt whose model the host runs itself, layer by layer (blend.h, "Step API"). Exclusive use;
// the const functions may run concurrently with each other.
class Layerwise {
 public:
  // `store` may be null with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE. The layerwise fuse keeps the
  // functions of `options`: select() asks on_score, commit() tells on_progress. A cancel token must
  // outlive it.
  Layerwise(const Model& model, const Store* store, const Prompt& prompt,
            const FuseOptions& options = FuseOptions())
      : model_events_(model.events()), callbacks_(std::make_unique<Callbacks>(options)) {
    FuseOptions copy = options;
    if (options.on_progress) {
      copy.progress = &detail::on_progress;
      copy.progress_user = &callbacks_->progress;
    }
    if (options.on_score) {
      copy.selection.score = &detail::on_score;
      copy.selection.score_user = &callbacks_->score;
    }
    detail::point_to_selection(copy);
    const std::vector<blend_segment> segments = prompt.segments();
    detail::Outcome outcome;
    blend_layerwise* raw = nullptr;
    check(outcome,
          blend_layerwise_create(&raw, model.get(), store == nullptr ? nullptr : store->get(),
                                 segments.data(), segments.size(), &copy, outcome.out()));
    handle_ = {raw, {store == nullptr ? nullptr : store->events()}};
  }
  void restart() {
    detail::Outcome outcome;
    outcome.check(blend_layerwise_restart(handle_.get(), outcome.out()));
  }
  void fetch_kv(uint32_t layer, const KvView& layer_kv) {
    detail::Outcome outcome;
    outcome.check(blend_layerwise_fetch_kv(handle_.get(), layer, &layer_kv, outcome.out()));
  }
  void synchronize(uint32_t layer) {
    detail::Outcome outcome;
    outcome.check(blend_layerwise_synchronize(handle_.get(), layer, outcome.out()));
  }
  // PROBE, CASCADE and ATTENTION: what the question attends to, [n_rows]; the layerwise fuse is at
  // layer 0 again. Valid until the next select, probe or restart.
  Span<const uint32_t> probe(Span<const float> attention) {
    detail::Outcome outcome;
    const uint32_t* rows = nullptr;
    size_t n = 0;
    check(outcome, blend_layerwise_probe(handle_.get(), attention.data(), attention.size(), &rows,
                                         &n, outcome.out()));
    return {rows, n};
  }
  // `fresh` may be null where nothing is measured. Valid until the next select, probe or restart.
  Span<const uint32_t> select(uint32_t layer, const KvView* fresh) {
    detail::Outcome outcome;
    const uint32_t* rows = nullptr;
    size_t n = 0;
    check(outcome, blend_layerwise_select(handle_.get(), layer, fresh, &rows, &n, outcome.out()));
    return {rows, n};
  }
  void commit(uint32_t layer) {
    detail::Outcome outcome;
    check(outcome, blend_layerwise_commit(handle_.get(), layer, outcome.out()));
  }
  // Rows that the host computes at this point. Valid until the next select, probe or restart.
  Span<const uint32_t> rows() const {
    detail::Outcome outcome;
    const uint32_t* rows = nullptr;
    size_t n = 0;
    outcome.check(blend_layerwise_get_rows(get(), &rows, &n, outcome.out()));
    return {rows, n};
  }
  // The prompt's. Valid while the layerwise fuse is open.
  Span<const int32_t> tokens() const {
    detail::Outcome outcome;
    const int32_t* tokens = nullptr;
    size_t n = 0;
    outcome.check(blend_layerwise_get_tokens(get(), &tokens, &n, outcome.out()));
    return {tokens, n};
  }
  FusionReport report() const {
    detail::Outcome outcome;
    FusionReport report;
    outcome.check(blend_layerwise_get_report(get(), &report, outcome.out()));
    return report;
  }
  LayerInfo layer(uint32_t layer) const {
    detail::Outcome outcome;
    LayerInfo info;
    outcome.check(blend_layerwise_get_layer(get(), layer, &info, outcome.out()));
    return info;
  }
  SegmentInfo segment(size_t segment) const {
    detail::Outcome outcome;
    SegmentInfo info;
    outcome.check(blend_layerwise_get_segment(get(), segment, &info, outcome.out()));
    return info;
  }
  // Valid until the next select, probe or restart.
  Span<const uint32_t> selected() const {
    detail::Outcome outcome;
    const uint32_t* rows = nullptr;
    size_t n = 0;
    outcome.check(blend_layerwise_get_selected(get(), &rows, &n, outcome.out()));
    return {rows, n};
  }
  // Valid until the next select, probe or restart.
  Span<const float> deviation() const {
    detail::Outcome outcome;
    const float* values = nullptr;
    size_t n = 0;
    outcome.check(blend_layerwise_get_deviation(get(), &values, &n, outcome.out()));
    return {values, n};
  }
  const blend_layerwise* get() const noexcept { return handle_.get(); }

 private:
  struct Callbacks {
    explicit Callbacks(const FuseOptions& options)
        : on_progress(options.on_progress), on_score(options.on_score) {}
    ProgressFn on_progress;
    ScoreFn on_score;
    detail::Outcome outcome;  // holds what they throw, until the call that asked them takes it
    detail::Guarded<ProgressFn> progress{on_progress, outcome};
    detail::Guarded<ScoreFn> score{on_score, outcome};
  };
  void check(detail::Outcome& outcome, int32_t code) {
    outcome.thrown = std::exchange(callbacks_->outcome.thrown, nullptr);
    outcome.check(code);
  }
  // The handle closes first: until then events of the model's context may come.
  std::shared_ptr<const EventFn> model_events_;
  std::unique_ptr<Callbacks> callbacks_;
  detail::Handle<blend_layerwise, blend_layerwise_close> handle_;
};

}  // namespace blendpp

#endif  // BLEND_BLEND_HPP
