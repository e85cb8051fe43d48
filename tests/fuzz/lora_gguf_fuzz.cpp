// A LoRA adapter of any bytes as a GGUF file (libFuzzer): it is refused, or fits the model.
#include <cstdint>

#include "lora_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  for (const char* family : {"llama", "qwen2"}) {
    const blend::ModelConfig config = blend::fuzz::lora_config(family);
    for (const blend::HeadRows rows : {blend::HeadRows::gguf, blend::HeadRows::hugging_face}) {
      blend::fuzz::check_lora(blend::read_gguf_lora(file, config, rows), config);
    }
  }
  return 0;
}
