// Shared by the shim's own files; SWIG never sees it.
#ifndef BLEND_SHIM_DETAIL_H
#define BLEND_SHIM_DETAIL_H

#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "blend/blend.hpp"
#include "shim.h"

namespace blend_shim {

// Holds an object of the library until close() or the last call that uses it ends, whichever
// is later. Thread-safe.
template <typename T>
class Slot {
 public:
  explicit Slot(const char* what, std::shared_ptr<T> object)
      : what_(what), object_(std::move(object)) {}
  std::shared_ptr<T> get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!object_) {
      throw blendpp::Error(BLEND_SHIM_E_CLOSED, 0, std::string("the ") + what_ + " is closed");
    }
    return object_;
  }
  // Empties the slot. The caller destroys what was in it, outside the lock.
  std::shared_ptr<T> take() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(object_, nullptr);
  }

 private:
  const char* what_;
  mutable std::mutex mutex_;
  std::shared_ptr<T> object_;
};

template <typename T>
std::shared_ptr<Slot<T>> make_slot(const char* what, std::shared_ptr<T> object) {
  return std::make_shared<Slot<T>>(what, std::move(object));
}

// Runs `call`, which may throw, and writes its outcome to `out`. On failure it returns the default
// of its type: null, zero, empty.
template <typename F>
auto guarded(Outcome& out, F call) noexcept -> decltype(call()) {
  using R = decltype(call());
  try {
    out.set(0);
    return call();
  } catch (const blendpp::Error& error) {
    try {
      out.set(error.code(), error.detail(), error.what());
    } catch (...) {
      out.set(error.code(), error.detail());
    }
  } catch (const std::bad_alloc&) {
    out.set(BLEND_E_OUT_OF_MEMORY);
  } catch (const std::exception& error) {
    try {
      out.set(BLEND_E_INTERNAL, 0, error.what());
    } catch (...) {
      out.set(BLEND_E_INTERNAL);
    }
  } catch (...) {
    out.set(BLEND_E_INTERNAL);
  }
  if constexpr (!std::is_void_v<R>) {
    return R();
  }
}

inline void require_complete(const Builder& builder) {
  if (!builder.complete()) throw std::bad_alloc();
}

inline std::vector<blendpp::ChatMessage> given_messages(const std::vector<Turn>& turns) {
  std::vector<blendpp::ChatMessage> messages;
  for (const Turn& turn : turns) messages.push_back({turn.role, turn.content, turn.members});
  return messages;
}

[[noreturn]] inline void invalid(const std::string& message) {
  throw blendpp::Error(BLEND_E_INVALID_ARGUMENT, 0, message);
}

// Copies one member of a C struct (`c`) to the shim's (`s`). Bytes become hexadecimal digits, and
// "" if they are all zero.
template <typename T>
void show(T& s, const T& c) {
  s = c;
}
inline void show(std::string& s, const char* c) { s = c == nullptr ? "" : c; }
inline void show(std::string& s, const blend_chunk_id& c) {
  const blendpp::ChunkId id(c);
  s = id == blendpp::ChunkId() ? "" : id.hex();
}
inline void show(std::string& s, const uint8_t (&c)[32]) {
  blend_chunk_id id;
  static_assert(sizeof id.bytes == sizeof c);
  std::memcpy(id.bytes, c, sizeof c);
  show(s, id);
}

// Copies one member back. A C string points into the shim's.
template <typename T>
void give(T& c, const T& s) {
  c = s;
}
inline void give(const char*& c, const std::string& s) { c = s.empty() ? nullptr : s.c_str(); }
inline void give(uint8_t (&c)[32], const std::string& s) {
  if (!s.empty()) std::memcpy(c, blendpp::ChunkId::from_hex(s).bytes, sizeof c);
}

#include "blend_copies.h"

// Options that are divided in C and whole here.
inline void show(FuseOptions& s, const blendpp::FuseOptions& c) {
  show(s, static_cast<const blend_fuse_options&>(c));
  show(s, static_cast<const blend_selection_options&>(c.selection));
}
inline void give(blendpp::FuseOptions& c, const FuseOptions& s) {
  give(static_cast<blend_fuse_options&>(c), s);
  give(static_cast<blend_selection_options&>(c.selection), s);
}
inline void show(StoreOptions& s, const blendpp::StoreOptions& c) {
  show(s, static_cast<const blend_store_options&>(c));
  show(s, static_cast<const blend_remote_options&>(c.remote));
}
inline void give(blendpp::StoreOptions& c, const StoreOptions& s) {
  give(static_cast<blend_store_options&>(c), s);
  give(static_cast<blend_remote_options&>(c.remote), s);
}

template <typename S, typename C>
S shown(const C& c) {
  S s;
  show(s, c);
  return s;
}

// The callback members of options that have a listener.
inline blendpp::ProgressFn progress_of(const Call& call) {
  Listener* listener = call.listener_;
  if (listener == nullptr) return {};
  return [listener](uint64_t done, uint64_t total) { return listener->progress(done, total); };
}

inline const blend_cancel* raw(const std::shared_ptr<blendpp::CancelToken>& cancel) {
  return cancel == nullptr ? nullptr : cancel->get();
}

// A view that owns its values.
template <typename T>
View owned(std::vector<T> values) {
  auto kept = std::make_shared<const std::vector<T>>(std::move(values));
  return View(kept, kept->data(), kept->size());
}

// The C form of a view, after checking that `rows` rows of a layer fit into its memory.
blendpp::KvView kv_view(const KvView& view, uint64_t rows, uint32_t n_kv_heads, uint32_t head_dim,
                        const char* what);

// Fuse options as a C struct, and everything that the struct points to.
struct FuseArguments {
  explicit FuseArguments(const FuseOptions& options);
  blendpp::FuseOptions c;
  FuseOptions kept;  // owns what `c` points to
  std::vector<blend_check_layer> check_layers;
  std::vector<blend_policy_term> terms;
};

// Corpus options as a C struct, which points into `options` and writes what becomes of each text to
// `made`.
blendpp::CorpusOptions corpus_arguments(const CorpusOptions& options, CorpusRecords& made);

Measurement measurement_line(const blend_measurement& c);

// Counts the calls that read or change an object, so that a change has it alone. Never waits.
// Thread-safe.
class Gate {
 public:
  explicit Gate(const char* what) noexcept : what_(what) {}
  // Throw IN_USE or, for a change, VIEW_HELD.
  void begin_reading();
  void end_reading() noexcept;
  // view_stays: the change does not affect the memory of views.
  void begin_changing(bool view_stays = false);
  void end_changing() noexcept;
  void add_view();  // while reading
  void drop_view() noexcept;

 private:
  const char* what_;
  std::mutex mutex_;
  size_t readers_ = 0;
  size_t views_ = 0;
  bool changing_ = false;
};

class Reading {
 public:
  explicit Reading(Gate& gate) : gate_(gate) { gate_.begin_reading(); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() { gate_.end_reading(); }

 private:
  Gate& gate_;
};

class Changing {
 public:
  explicit Changing(Gate& gate, bool view_stays = false) : gate_(gate) {
    gate_.begin_changing(view_stays);
  }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;
  ~Changing() { gate_.end_changing(); }

 private:
  Gate& gate_;
};

struct FusionState {
  explicit FusionState(blendpp::Fusion made) : fusion(std::move(made)) {}
  blendpp::Fusion fusion;
  Gate gate{"fusion"};
};

// A view of a fusion's memory. While the view exists the fusion stays in memory and cannot be
// changed.
template <typename T>
View lend(const std::shared_ptr<FusionState>& state, blendpp::Span<const T> span) {
  struct Lease {
    explicit Lease(std::shared_ptr<FusionState> s) : state(std::move(s)) { state->gate.add_view(); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { state->gate.drop_view(); }
    std::shared_ptr<FusionState> state;
  };
  return View(std::make_shared<const Lease>(state), span.data(), span.size());
}

}  // namespace blend_shim

#endif
