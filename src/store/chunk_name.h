// ChunkName: what people call a stored chunk. No part of its id: the same rows under another name
// are the same chunk.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace blend {

inline constexpr size_t kMostLabelBytes = 1024;  // BLEND_LABEL_BYTES
inline constexpr size_t kMostTagsBytes = 1024;   // BLEND_TAGS_BYTES

// Nothing: not said. A put keeps of the chunk that it replaces what it does not say.
struct ChunkName {
  std::optional<std::string> label;  // UTF-8 in one line, by custom "document#part"; "": none
  std::optional<std::string> tags;   // words in order, each once, one space between; "": none

  bool is_given() const { return label.has_value() || tags.has_value(); }
  bool is_empty() const { return label.value_or("").empty() && tags.value_or("").empty(); }
  // Whether saying this changes nothing about a chunk that is called `now`.
  bool says_no_more_than(const ChunkName& now) const;
  // What this does not say is taken from `before`.
  void complete_with(const ChunkName& before);
  bool operator==(const ChunkName&) const = default;
};

// A name as a host gives it; tags may come in any order. INVALID_ARGUMENT: too long, not UTF-8, or
// more than a line.
Result<ChunkName> read_chunk_name(const char* label, const char* tags);
// The same of a record's: false where read_chunk_name() would not have given it.
bool is_sound(const ChunkName& name);

}  // namespace blend
