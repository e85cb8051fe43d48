#include "detail.h"

namespace blend_shim {

StoreOptions::StoreOptions() noexcept {
  const blendpp::StoreOptions c;
  StoreOptions& s = *this;
  BLEND_STORE_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
}
StoreStat::StoreStat() noexcept {
  const blendpp::StoreStat c;
  StoreStat& s = *this;
  BLEND_STORE_STAT_FIELDS(BLEND_SHIM_FROM_C)
}
CodecStat::CodecStat() noexcept {
  const blendpp::CodecStat c;
  CodecStat& s = *this;
  BLEND_CODEC_STAT_FIELDS(BLEND_SHIM_FROM_C)
}
ChunkInfo::ChunkInfo() noexcept {
  const blend_chunk_info c{};
  ChunkInfo& s = *this;
  BLEND_CHUNK_INFO_FIELDS(BLEND_SHIM_FROM_C)
}

std::string fingerprint_hex(const uint8_t (&bytes)[32]) {
  blendpp::ChunkId id;
  static_assert(sizeof id.bytes == sizeof bytes);
  std::memcpy(id.bytes, bytes, sizeof bytes);
  return id.hex();
}

ChunkInfo Chunks::at(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] {
    if (i >= chunks_.size()) invalid("no chunk " + std::to_string(i) + " in the list");
    return chunks_[i];
  });
}

Store::Store(std::shared_ptr<Slot<blendpp::Store>> slot) noexcept : slot_(std::move(slot)) {}
Store::~Store() = default;

Store* Store::open(const Context& ctx, const std::string& path, const StoreOptions& options,
                   Outcome& out) noexcept {
  return guarded(out, [&] {
    const StoreOptions& s = options;
    blendpp::StoreOptions c;
    BLEND_STORE_OPTIONS_FIELDS(BLEND_SHIM_TO_C)
    const auto context = ctx.slot().get();
    return new Store(make_slot("store", std::make_shared<blendpp::Store>(*context, path, c)));
  });
}

Store* Store::none() noexcept { return new (std::nothrow) Store(nullptr); }

void Store::flush(Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->flush(); });
}

Chunks Store::list(bool verify, Outcome& out) const noexcept {
  return guarded(out, [&] {
    Chunks chunks;
    try {
      open_slot().get()->list(verify, [&](const blend_chunk_info& c, const char* problem) {
        ChunkInfo s;
        BLEND_CHUNK_INFO_FIELDS(BLEND_SHIM_FROM_C)
        s.id = blendpp::ChunkId(c.id).hex();
        s.fingerprint = fingerprint_hex(c.fingerprint);
        if (problem != nullptr) s.problem = problem;
        chunks.chunks_.push_back(std::move(s));
        return true;
      });
    } catch (const blendpp::Error& error) {
      // What is damaged is told in the list.
      bool any = false;
      for (const ChunkInfo& chunk : chunks.chunks_) any = any || !chunk.problem.empty();
      if (error.code() != BLEND_E_CORRUPT || !any) throw;
    }
    return chunks;
  });
}

void Store::remove(const std::string& id, Outcome& out) const noexcept {
  guarded(out, [&] { open_slot().get()->remove(blendpp::ChunkId::from_hex(id)); });
}

StoreStat Store::stat(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const blendpp::StoreStat c = open_slot().get()->stat();
    StoreStat s;
    BLEND_STORE_STAT_FIELDS(BLEND_SHIM_FROM_C)
    return s;
  });
}

CodecStat Store::codec_stat(uint32_t codec, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const blendpp::CodecStat c = open_slot().get()->codec_stat(codec);
    CodecStat s;
    BLEND_CODEC_STAT_FIELDS(BLEND_SHIM_FROM_C)
    return s;
  });
}

void Store::close() noexcept {
  if (slot_) slot_->take();
}

const Slot<blendpp::Store>& Store::open_slot() const {
  if (!slot_) invalid("this needs a store, and Store::none() is none");
  return *slot_;
}

std::shared_ptr<blendpp::Store> Store::get() const { return slot_ ? slot_->get() : nullptr; }

}  // namespace blend_shim
