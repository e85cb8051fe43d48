// ChunkFilter: selects chunks of a store by label, tag, model and tenant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/chunk/chunk.h"

namespace blend {

// Whether the whole of `text` matches: `*` any characters or none, `?` one, `\` makes the next
// literal.
bool fits_pattern(std::string_view pattern, std::string_view text);

// A member that is not set fits every chunk.
struct ChunkFilter {
  std::optional<TenantTag> tenant;
  std::string label;              // pattern of the label, or of it without "#part"
  std::vector<std::string> tags;  // patterns: each must fit a tag
  std::string model;              // first digits of the fingerprint
  bool unlabelled = false;        // only chunks without a label

  bool says_nothing() const {
    return label.empty() && tags.empty() && model.empty() && !unlabelled;
  }
  // A chunk whose description is damaged has no tokens, and fits only the empty filter.
  bool fits(const ChunkMeta& meta) const;
};

// INVALID_ARGUMENT: model is not a hexadecimal number of at most 64 digits. Each may be null.
Result<ChunkFilter> read_chunk_filter(const char* tenant, const char* label, const char* tags,
                                      const char* model);

}  // namespace blend
