#include <cstring>

#include "base/hash.h"
#include "capi/error.h"

extern "C" {

void blend_chunk_id_to_hex(const blend_chunk_id* id, char* hex) {
  static constexpr char kDigits[] = "0123456789abcdef";
  if (id == nullptr || hex == nullptr) return;
  for (const uint8_t b : id->bytes) {
    *hex++ = kDigits[b >> 4];
    *hex++ = kDigits[b & 15];
  }
  *hex = '\0';
}

int32_t blend_chunk_id_from_hex(blend_chunk_id* id, const char* hex, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> blend::Status {
    BLEND_REQUIRE(id);
    BLEND_REQUIRE(hex);
    BLEND_ASSIGN(const blend::Sha256 digest, blend::sha256_from_hex(hex));
    std::memcpy(id->bytes, digest.data(), digest.size());
    return blend::Status::ok();
  });
}

}  // extern "C"
