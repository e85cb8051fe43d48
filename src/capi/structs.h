// Versioned structs: read options of any size, write infos of any size.
//
// A struct's first release fixes the least size that is accepted. A larger one comes from a host
// that was built against a newer header: fine as long as the members unknown here are zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "capi/error.h"

namespace blend::capi {

// The size each struct had when it was first released. Never changes once shipped.
template <typename T>
struct FirstRelease;

#define BLEND_FIRST_RELEASE(type, bytes)       \
  template <>                                  \
  struct FirstRelease<type> {                  \
    static constexpr size_t size = bytes;      \
    static constexpr const char* name = #type; \
  };                                           \
  static_assert(sizeof(type) >= (bytes), #type " shrank")

BLEND_FIRST_RELEASE(blend_ctx_options, 48);
BLEND_FIRST_RELEASE(blend_model_options, 40);
BLEND_FIRST_RELEASE(blend_model_info, 152);
BLEND_FIRST_RELEASE(blend_model_description, 112);
BLEND_FIRST_RELEASE(blend_kv_view, 48);
BLEND_FIRST_RELEASE(blend_store_options, 72);
BLEND_FIRST_RELEASE(blend_chunk_info, 136);
BLEND_FIRST_RELEASE(blend_store_stat, 232);
BLEND_FIRST_RELEASE(blend_codec_stat, 32);
BLEND_FIRST_RELEASE(blend_transfer_options, 48);
BLEND_FIRST_RELEASE(blend_precompute_options, 64);
BLEND_FIRST_RELEASE(blend_segment, 32);
BLEND_FIRST_RELEASE(blend_fuse_options, 184);
BLEND_FIRST_RELEASE(blend_fuse_request, 32);
BLEND_FIRST_RELEASE(blend_fusion_info, 296);
BLEND_FIRST_RELEASE(blend_layer_info, 120);
BLEND_FIRST_RELEASE(blend_segment_info, 72);
BLEND_FIRST_RELEASE(blend_generate_options, 64);
BLEND_FIRST_RELEASE(blend_machine_options, 48);
BLEND_FIRST_RELEASE(blend_machine_info, 32);
BLEND_FIRST_RELEASE(blend_device, 24);
BLEND_FIRST_RELEASE(blend_advise_options, 32);
BLEND_FIRST_RELEASE(blend_advice, 48);
BLEND_FIRST_RELEASE(blend_profile_info, 136);
BLEND_FIRST_RELEASE(blend_measurement, 72);
BLEND_FIRST_RELEASE(blend_sample, 24);
BLEND_FIRST_RELEASE(blend_calibrate_options, 144);
BLEND_FIRST_RELEASE(blend_verify_options, 88);
BLEND_FIRST_RELEASE(blend_verdict, 40);
#undef BLEND_FIRST_RELEASE

template <typename T>
Status check_size(size_t size) {
  if (size >= FirstRelease<T>::size) return Status::ok();
  return make_error(BLEND_E_INVALID_STRUCT,
                    "%s: struct_size %zu is less than %zu; call %s_init(&s, sizeof s) first",
                    FirstRelease<T>::name, size, FirstRelease<T>::size, FirstRelease<T>::name);
}

// What *_init does: `size` bytes of defaults, the tail this library does not know zeroed.
template <typename T>
int32_t init_struct(T* out, size_t size, const T& defaults) noexcept {
  if (out == nullptr) return BLEND_E_INVALID_ARGUMENT;
  if (size < FirstRelease<T>::size || size > UINT32_MAX) return BLEND_E_INVALID_STRUCT;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &defaults, std::min(size, sizeof(T)));
  out->struct_size = static_cast<uint32_t>(size);
  return BLEND_OK;
}

// Overlays *in (may be NULL) on `options`, which holds the defaults.
template <typename T>
Status read_struct(const T* in, T& options) {
  if (in == nullptr) return Status::ok();
  const size_t size = in->struct_size;
  BLEND_RETURN_IF_ERROR(check_size<T>(size));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return make_error(BLEND_E_INVALID_STRUCT,
                        "%s: byte %zu is set, but this library (%s) knows only %zu bytes",
                        FirstRelease<T>::name, i, blend_version(), sizeof(T));
    }
  }
  std::memcpy(static_cast<void*>(&options), in, std::min(size, sizeof(T)));
  return Status::ok();
}

// Reserved members may get a meaning later: a host must not set them now.
inline Status check_reserved(const char* name, uint64_t value) {
  if (value == 0) return Status::ok();
  return make_error(BLEND_E_INVALID_STRUCT, "%s must be 0", name);
}

// Fills *out up to the size the host gave; its struct_size stays.
template <typename T>
Status write_struct(T* out, const T& values) {
  if (out == nullptr) return null_argument("info");
  const uint32_t size = out->struct_size;
  BLEND_RETURN_IF_ERROR(check_size<T>(size));
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &values, std::min<size_t>(size, sizeof(T)));
  out->struct_size = size;
  return Status::ok();
}

}  // namespace blend::capi
