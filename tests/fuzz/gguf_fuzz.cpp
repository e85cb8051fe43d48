// A GGUF file of any bytes (libFuzzer): it is refused, or can be read from end to end.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "model/llama_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // In a heap block of its own, so that a step past the end is seen.
  auto file = std::make_shared<std::vector<std::byte>>(size);
  if (size > 0) std::memcpy(file->data(), data, size);
  const auto source = blend::open_llama_gguf(*file, file);
  if (!source.is_ok()) {
    const int32_t code = source.status().code();
    if (code != BLEND_E_FORMAT && code != BLEND_E_UNSUPPORTED) std::abort();
    return 0;
  }
  if (!source.value()->fingerprint({}, {}).is_ok()) std::abort();
  const blend::Tokenizer& t = source.value()->tokenizer();
  const auto ids = t.encode("The 1st <s>t\xc3\xa9st\xff  \xe2\x82\xac\n\n", 3u);
  if (ids.is_ok() && !t.decode(ids.value(), 2u).is_ok()) std::abort();
  return 0;
}
