// Stores: where chunks are kept.
#ifndef BLEND_SHIM_STORE_H
#define BLEND_SHIM_STORE_H

#include <vector>

#include "context.h"

namespace blendpp {
class Store;
}

namespace blend_shim {

struct StoreOptions {
  StoreOptions() noexcept;
  BLEND_STORE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

struct StoreStat {
  BLEND_STORE_STAT_FIELDS(BLEND_SHIM_DECLARE)
#ifndef SWIG
  StoreStat() noexcept;
#endif
};

struct CodecStat {
  BLEND_CODEC_STAT_FIELDS(BLEND_SHIM_DECLARE)
#ifndef SWIG
  CodecStat() noexcept;
#endif
};

struct ChunkInfo {
  BLEND_CHUNK_INFO_FIELDS(BLEND_SHIM_DECLARE)
  std::string id;           // 64 hexadecimal digits, as all ids here
  std::string fingerprint;  // of the model, the same form
  std::string problem;      // "" for a sound chunk
#ifndef SWIG
  ChunkInfo() noexcept;
#endif
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

// Every function may be called on any thread at any time, close() included; see Context.
class Store {
 public:
  // Null on failure.
  static Store* open(const Context& ctx, const std::string& path, const StoreOptions& options,
                     Outcome& out) noexcept;
  // No store at all: what fuses and plans with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE may be
  // given.
  static Store* none() noexcept;
  ~Store();
  void flush(Outcome& out) const noexcept;
  // Damaged chunks have a `problem` if `verify` is asked for; they are no failure of the call.
  Chunks list(bool verify, Outcome& out) const noexcept;
  void remove(const std::string& id, Outcome& out) const noexcept;
  StoreStat stat(Outcome& out) const noexcept;
  CodecStat codec_stat(uint32_t codec, Outcome& out) const noexcept;
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
