// A chat template of any bytes: it is refused, or it renders within its bounds.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "chat/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace blend::chat;
  auto parsed = Template::parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.is_ok()) return 0;
  auto json = blend::Json::parse(
      R"([{"role": "system", "content": " S "}, {"role": "user", "content": "<|im_end|>ü"},
          {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f",
           "arguments": {"x": [1, 2.5, null, true]}}}]}])");
  Variables variables;
  variables.emplace("messages", *Value::from_json(*json, kMessage));
  variables.emplace("tools", Value::none());
  variables.emplace("bos_token", Value::text("<s>"));
  variables.emplace("add_generation_prompt", Value::of(true));
  // Little, so that many templates are tried in a second.
  constexpr size_t kFuel = 1 << 18;
  auto text = parsed->render(variables, 0, kFuel);
  if (!text.is_ok()) return 0;
  // The runs cover the text, in order.
  size_t end = 0;
  for (const Text::Run& run : text->runs()) {
    if (run.end <= end) std::abort();
    end = run.end;
  }
  if (end != text->size()) std::abort();
  return 0;
}
