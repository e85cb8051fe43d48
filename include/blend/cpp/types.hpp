// Cancel tokens and ids of chunks.
#ifndef BLEND_CPP_TYPES_HPP
#define BLEND_CPP_TYPES_HPP

#include <string>

#include "blend/cpp/detail.hpp"

namespace blendpp {

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

}  // namespace blendpp

#endif
