// ChunkFilter: which chunks of a store are meant, by what they are called and whose they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/chunk.h"

namespace blend {

// Whether the whole of `text` fits: `*` any characters or none, `?` one, `\` takes the next as it
// is.
bool fits_pattern(std::string_view pattern, std::string_view text);

// What is not said fits every chunk.
struct ChunkFilter {
  std::optional<TenantTag> tenant;
  std::string label;              // pattern of the label, or of it without "#part"
  std::vector<std::string> tags;  // patterns: each must fit a tag
  std::string model;              // first digits of the fingerprint
  bool unlabelled = false;        // only chunks without a label

  bool says_nothing() const {
    return label.empty() && tags.empty() && model.empty() && !unlabelled;
  }
  // A chunk whose description is damaged has no tokens, and fits only where nothing is said.
  bool fits(const ChunkMeta& meta) const;
};

// INVALID_ARGUMENT: model is no hexadecimal number of at most 64 digits. Each may be null.
Result<ChunkFilter> read_chunk_filter(const char* tenant, const char* label, const char* tags,
                                      const char* model);

}  // namespace blend
