// The codecs, one row each: the only list of them beside the numbers in the files
// (store/chunk/chunk.h).
//
// The library's codecs and their names, the bound of the C ABI and the names of the command read
// it. A new codec is a constant of the public header, its number in chunk.h, a file in this folder,
// a row here, its bytes in FORMAT.md, and a test.
#pragma once

#include <string_view>

namespace blend {

// PLANE: a PlaneCodec, PACKED: a PackedCodec; MEMBER_codec() of codec.h gives it. Both: member of
// Codec, name, whether what comes back is what was put, bit for bit. In the order of the numbers in
// the files; BLEND_CODEC_* are one more.
// clang-format off
#define BLEND_CODECS(PLANE, PACKED)  \
  PLANE(none,  "none", true)         \
  PLANE(zstd,  "zstd", true)         \
  PACKED(int8, "int8", false)        \
  PACKED(int4, "int4", false)        \
  PLANE(rans,  "rans", false)
// clang-format on

struct CodecEntry {
  std::string_view name;
  bool lossless;
};

#define BLEND_ROW(member, name, lossless) {name, lossless},
inline constexpr CodecEntry kCodecTable[] = {BLEND_CODECS(BLEND_ROW, BLEND_ROW)};
#undef BLEND_ROW

}  // namespace blend
