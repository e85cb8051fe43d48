// What blend_precompute, blend_chunk_put and blend_chunk_find are asked for, checked and typed.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/threads/cancel.h"
#include "capi/handles.h"
#include "store/chunk/chunk.h"

namespace blend::capi {

struct ChunkRequest {
  std::span<const int32_t> prefix;                 // the host's memory: valid during the call
  std::span<const int32_t> predecessor;            // the host's memory too; empty: none
  std::string_view tenant;                         // the host's memory too
  ChunkMeta meta;                                  // id, shape and tokens
  std::optional<Codec> codec;                      // to put it with; nothing: the store's
  bool background = false;                         // put it so
  bool after_bos = false;                          // store it after BOS too
  std::vector<std::span<const int32_t>> contexts;  // the host's memory; empty: a plain record
  bool names_contexts = false;                     // whether the host gave any, used or not
  uint32_t n_threads = 0;                          // ThreadCap
  Watch watch;

  // What the id says that the chunk is prefilled after.
  std::vector<int32_t> whole_prefix() const {
    std::vector<int32_t> out(prefix.begin(), prefix.end());
    out.insert(out.end(), predecessor.begin(), predecessor.end());
    return out;
  }
};

// tokens: not null. INVALID_ARGUMENT, INVALID_STRUCT or CONTEXT_LENGTH name what is wrong.
Result<ChunkRequest> read_chunk_request(const blend_model& model, const blend_store& store,
                                        const int32_t* tokens, size_t n_tokens,
                                        const blend_precompute_options* options);

}  // namespace blend::capi
