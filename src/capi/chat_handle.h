// blend_chat, which chat.h and text.h share. (Not chat.h: abidw takes what a header of that name
// has for public.)
#pragma once

#include <string>
#include <vector>

#include "capi/structs.h"
#include "text/prompt.h"

struct blend_chat {
  blend::text::Prompt prompt;
  std::vector<blend_chunk_id> ids;  // [documents]
  std::vector<blend_segment> segments;

  // Fills in `segments`; the prompt must not change after that.
  void show_segments();
};

namespace blend::capi {

// Messages or documents of one prompt.
inline constexpr size_t kMostParts = size_t{1} << 20;

inline Status check_parts(size_t n, const char* name) {
  if (n <= kMostParts) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "%zu %ss are more than any chat has", n, name);
}

// The elements of a versioned array.
template <typename T>
Result<std::vector<T>> read_array(const T* array, size_t n, const char* name) {
  BLEND_RETURN_IF_ERROR(check_parts(n, name));
  BLEND_RETURN_IF_ERROR(check_elements(array, n, name));
  std::vector<T> out(n);
  for (size_t i = 0; i < n; ++i) {
    const Status status = read_struct(element(array, i), out[i]);
    if (!status.is_ok()) return status.with_context(std::string(name) + " " + std::to_string(i));
  }
  return out;
}

}  // namespace blend::capi
