// A safetensors file of any bytes (libFuzzer): it is refused, or its tensors lie inside it.
#include <cstdint>
#include <cstdlib>

#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto reader =
      blend::SafetensorsReader::parse({reinterpret_cast<const std::byte*>(data), size});
  if (!reader.is_ok()) {
    const int32_t code = reader.status().code();
    if (code != BLEND_E_FORMAT && code != BLEND_E_UNSUPPORTED) std::abort();
    return 0;
  }
  unsigned sum = 0;
  for (const blend::SafetensorsTensor& t : reader.value().tensors()) {
    if (reader.value().tensor(t.name) != &t) std::abort();
    for (uint64_t i = 0; i < t.bytes; ++i) sum += data[t.offset + i];
  }
  volatile unsigned keep = sum;
  (void)keep;
  return 0;
}
