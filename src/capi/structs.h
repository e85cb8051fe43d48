// Versioned structs: read options of any size, write infos of any size.
//
// A struct's first release fixes the least size that is accepted. A larger one comes from a host
// that was built against a newer header: fine as long as the members unknown here are zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

BLEND_FIRST_RELEASE(blend_chat_document, 40);
BLEND_FIRST_RELEASE(blend_chat_message, 40);
BLEND_FIRST_RELEASE(blend_chat_options, 48);
BLEND_FIRST_RELEASE(blend_template_info, 64);
BLEND_FIRST_RELEASE(blend_call_reader_options, 24);
BLEND_FIRST_RELEASE(blend_call_info, 24);
BLEND_FIRST_RELEASE(blend_text_options, 88);
BLEND_FIRST_RELEASE(blend_ctx_options, 56);
BLEND_FIRST_RELEASE(blend_lora, 24);
BLEND_FIRST_RELEASE(blend_lora_info, 64);
BLEND_FIRST_RELEASE(blend_model_options, 56);
BLEND_FIRST_RELEASE(blend_model_info, 160);
BLEND_FIRST_RELEASE(blend_embed_options, 48);
BLEND_FIRST_RELEASE(blend_model_description, 112);
BLEND_FIRST_RELEASE(blend_kv_view, 48);
BLEND_FIRST_RELEASE(blend_store_options, 96);
BLEND_FIRST_RELEASE(blend_chunk_info, 152);
BLEND_FIRST_RELEASE(blend_filter_options, 32);
BLEND_FIRST_RELEASE(blend_store_stat, 104);
BLEND_FIRST_RELEASE(blend_codec_stat, 32);
BLEND_FIRST_RELEASE(blend_transfer_options, 48);
BLEND_FIRST_RELEASE(blend_precompute_options, 112);
BLEND_FIRST_RELEASE(blend_corpus_chunk, 40);
BLEND_FIRST_RELEASE(blend_corpus_record, 56);
BLEND_FIRST_RELEASE(blend_corpus_options, 96);
BLEND_FIRST_RELEASE(blend_segment, 32);
BLEND_FIRST_RELEASE(blend_fuse_options, 120);
BLEND_FIRST_RELEASE(blend_fuse_request, 32);
BLEND_FIRST_RELEASE(blend_fusion_report, 384);
BLEND_FIRST_RELEASE(blend_layer_info, 152);
BLEND_FIRST_RELEASE(blend_segment_info, 80);
BLEND_FIRST_RELEASE(blend_generate_options, 168);
BLEND_FIRST_RELEASE(blend_generate_request, 40);
BLEND_FIRST_RELEASE(blend_grammar_options, 40);
BLEND_FIRST_RELEASE(blend_machine_options, 48);
BLEND_FIRST_RELEASE(blend_machine_info, 32);
BLEND_FIRST_RELEASE(blend_storage, 32);
BLEND_FIRST_RELEASE(blend_advise_options, 40);
BLEND_FIRST_RELEASE(blend_advice, 56);
BLEND_FIRST_RELEASE(blend_profile_info, 224);
BLEND_FIRST_RELEASE(blend_measurement, 104);
BLEND_FIRST_RELEASE(blend_codec_cost, 48);
BLEND_FIRST_RELEASE(blend_sample, 24);
BLEND_FIRST_RELEASE(blend_calibrate_options, 192);
BLEND_FIRST_RELEASE(blend_verify_options, 88);
BLEND_FIRST_RELEASE(blend_verdict, 40);
BLEND_FIRST_RELEASE(blend_selection_options, 96);
BLEND_FIRST_RELEASE(blend_remote_options, 104);
BLEND_FIRST_RELEASE(blend_store_report, 304);
BLEND_FIRST_RELEASE(blend_remote_stat, 152);
BLEND_FIRST_RELEASE(blend_fusion_info, 96);
#undef BLEND_FIRST_RELEASE

// No struct will ever be as large: what says so was not set, and is not read or written by.
inline constexpr size_t kMostStructBytes = 64 << 10;

template <typename T>
Status check_size(size_t size) {
  if (size > kMostStructBytes) {
    return make_error(BLEND_E_INVALID_STRUCT,
                      "%s: struct_size %zu is more than any struct has: set it to sizeof(%s)",
                      FirstRelease<T>::name, size, FirstRelease<T>::name);
  }
  if (size >= FirstRelease<T>::size) return Status::ok();
  return make_error(BLEND_E_INVALID_STRUCT,
                    "%s: struct_size %zu is less than %zu: set it to sizeof(%s)",
                    FirstRelease<T>::name, size, FirstRelease<T>::size, FirstRelease<T>::name);
}

// What *_init does: `size` bytes of defaults; the tail this library does not know becomes zero.
template <typename T>
int32_t init_struct(T* out, size_t size, const T& defaults) noexcept {
  if (out == nullptr) return BLEND_E_INVALID_ARGUMENT;
  if (size < FirstRelease<T>::size || size > kMostStructBytes) return BLEND_E_INVALID_STRUCT;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &defaults, std::min(size, sizeof(T)));
  out->struct_size = static_cast<uint32_t>(size);
  return BLEND_OK;
}

// *_init of options whose defaults are all zero.
template <typename T>
int32_t init_struct(T* out, size_t size) noexcept {
  return init_struct(out, size, T{});
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

// Element i of an array whose stride is the struct_size of the host's header, which may be newer.
template <typename T>
T* element(T* array, size_t i) {
  using Byte = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(array) + i * array->struct_size);
}

// The stride holds only if all n elements have it. `name` is what the messages call an element.
template <typename T>
Status check_elements(const T* array, size_t n, const char* name) {
  if (n > 0) {
    if (Status s = check_size<T>(array->struct_size); !s.is_ok()) {
      return s.with_context(std::string(name) + " 0");
    }
  }
  for (size_t i = 1; i < n; ++i) {
    if (element(array, i)->struct_size == array->struct_size) continue;
    return make_error(BLEND_E_INVALID_STRUCT,
                      "%s %zu: struct_size differs from that of %s 0: set it to sizeof(%s) in each",
                      name, i, name, FirstRelease<T>::name);
  }
  return Status::ok();
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
