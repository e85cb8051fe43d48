// A PEFT adapter of any bytes (libFuzzer): its config, up to the first NUL, and its tensors. It is
// refused, or fits the model.
#include <algorithm>
#include <cstdint>

#include "lora_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* const end = data + size;
  const uint8_t* const nul = std::find(data, end, uint8_t{0});
  const uint8_t* const tensors = nul == end ? end : nul + 1;
  const blend::ModelConfig config = blend::fuzz::lora_config("llama");
  blend::fuzz::check_lora(
      blend::read_peft_lora(
          {reinterpret_cast<const char*>(data), static_cast<size_t>(nul - data)},
          {reinterpret_cast<const std::byte*>(tensors), static_cast<size_t>(end - tensors)}, config,
          blend::HeadRows::gguf),
      config);
  return 0;
}
