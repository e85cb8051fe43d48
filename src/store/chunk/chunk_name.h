// ChunkName: label and tags of a stored chunk. Not part of its id: the same rows under another name
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

// A member that is not set: a put keeps that of the chunk it replaces.
struct ChunkName {
  std::optional<std::string> label;  // UTF-8 in one line, by custom "document#part"; "": none
  std::optional<std::string> tags;   // words in order, each once, one space between; "": none

  bool is_given() const { return label.has_value() || tags.has_value(); }
  bool is_empty() const { return label.value_or("").empty() && tags.value_or("").empty(); }
  // Whether setting this changes nothing about a chunk that is called `now`.
  bool says_no_more_than(const ChunkName& now) const;
  // Takes members that are not set from `before`.
  void complete_with(const ChunkName& before);
  bool operator==(const ChunkName&) const = default;
};

// A name as a host gives it; tags may come in any order. INVALID_ARGUMENT: too long, not UTF-8, or
// more than a line.
Result<ChunkName> read_chunk_name(const char* label, const char* tags);
// Whether a record's name is one that read_chunk_name() could have returned.
bool is_sound(const ChunkName& name);

}  // namespace blend
