// A tokenizer.json of any bytes (libFuzzer): it is refused, or can be used. Texts that a pattern of
// the file takes too long over may fail.
#include <cstdint>
#include <cstdlib>

#include "model/tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto spec = blend::parse_tokenizer_json({reinterpret_cast<const char*>(data), size});
  if (!spec.is_ok()) {
    const int32_t code = spec.status().code();
    if (code != BLEND_E_FORMAT && code != BLEND_E_UNSUPPORTED) std::abort();
    return 0;
  }
  const auto made = blend::BpeTokenizer::create(std::move(*spec));
  if (!made.is_ok()) return 0;
  const blend::BpeTokenizer& t = *made.value();
  for (const char* text :
       {"The 1st <s>te\xcc\x81st\xff  \xe2\x82\xac\n\n", "<|im_end|> a\tAAAA 12"}) {
    for (const uint32_t flags : {0u, 3u, 7u}) {
      const auto ids = t.encode(text, flags);
      if (!ids.is_ok()) continue;
      for (const int32_t id : ids.value()) {
        if (id < 0 || id >= static_cast<int64_t>(t.n_vocab())) std::abort();
      }
      if (!t.decode(ids.value(), flags).is_ok()) std::abort();
    }
  }
  for (uint32_t id = 0; id < t.n_vocab() && id < 1000; ++id) {
    (void)t.piece(static_cast<int32_t>(id), 2u);
  }
  return 0;
}
