#include "model/tokenizer/pre_patterns.h"

#include <algorithm>
#include <array>

namespace blend {

namespace {

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
// Marks belong to words.
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeed =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek V3's, one after the other.
constexpr const char* kUpToThreeDigits = R"(\p{N}{1,3})";
constexpr const char* kHanAndKana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr const char* kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek V2's, one after the other: lines, words of letters that have a case, ...
constexpr const char* kLineEnd = "[\r\n]";
constexpr const char* kCased =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124"
    "\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f"
    "\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr const char* kHalfAndFullMarks =
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr const char* kLastSpaces = R"(\s+$)";
constexpr const char* kFromSamaritanOn = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
// Kimi's: Han are words by themselves, and else GPT-4o's words.
constexpr const char* kKimi =
    R"(\p{Han}+|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDigit = R"(\p{N})";
// llama.cpp's default where a file names no pre-tokenizer.
constexpr const char* kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr const char* kDefaultNumber = R"(\p{N}+)";
constexpr const char* kDefaultDigits = R"([0-9][0-9][0-9])";

struct Family {
  std::string_view name;
  std::array<const char*, 6> patterns;  // one after the other, up to the first null
  bool ignore_merges;
  bool add_bos;
  bool nfc = false;
};

constexpr Family kFamilies[] = {
    {"default", {kDefaultPunctuation, kGpt2Pattern, kDefaultNumber, kDefaultDigits}, false, false},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"falcon-h1", {kLlama3}, true, true},
    {"lfm2", {kLlama3}, true, true},
    {"pixtral", {kLlama3}, true, true},  // as converters call Nemotron-H's
    {"glm4", {kLlama3}, true, false},
    {"chatglm-bpe", {kLlama3}, false, false},
    {"dbrx", {kLlama3}, false, false},
    {"smaug-bpe", {kLlama3}, false, false},
    {"qwen2", {kQwen2}, false, false, true},
    {"qwen35", {kQwen35}, false, false, true},
    {"deepseek-r1-qwen", {kQwen2}, false, false},
    {"gpt-2", {kGpt2Pattern}, false, false},
    {"phi-2", {kGpt2Pattern}, false, false},
    {"olmo", {kGpt2Pattern}, false, false},
    {"exaone4", {kGpt2Pattern}, false, false},
    {"granite-docling", {kGpt2Pattern}, false, false},
    {"seed-coder", {kSeed}, false, false},
    {"hunyuan-dense", {kUpToThreeDigits, kHanAndKana, kDeepSeek3}, false, false},
    {"deepseek-v3", {kUpToThreeDigits, kHanAndKana, kDeepSeek3}, false, false},
    // Digits are words by themselves, as in the models' own files; llama.cpp has runs of them.
    {"deepseek-llm",
     {kLineEnd, kCased, kHalfAndFullMarks, kLastSpaces, kFromSamaritanOn, kDigit},
     false,
     false},
    {"kimi-k2", {kKimi}, false, false},
    {"smollm", {kDigit, kGpt2Pattern}, false, false},
    {"starcoder", {kDigit, kGpt2Pattern}, false, false},
    {"refact", {kDigit, kGpt2Pattern}, false, false},
    {"tekken", {kTekken}, true, true},
    {"gpt-4o", {kGpt4o}, false, false},
};

}  // namespace

Result<PreTokenizer> named_pre_tokenizer(std::string_view name) {
  const auto* const family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                          [&](const Family& f) { return f.name == name; });
  if (family == std::end(kFamilies)) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "pre-tokenizer '%.*s' is not supported; libblend knows llama-bpe, qwen2, "
                      "smollm, gpt-2, tekken and their like",
                      static_cast<int>(std::min<size_t>(name.size(), 40)), name.data());
  }
  PreTokenizer pre;
  pre.ignore_merges = family->ignore_merges;
  pre.add_bos = family->add_bos;
  if (family->nfc) pre.normalize.emplace_back();
  for (const char* pattern : family->patterns) {
    if (pattern == nullptr) break;
    SplitStep step;
    BLEND_ASSIGN(step.at, Regex::compile(pattern));
    pre.split.push_back(std::move(step));
  }
  return pre;
}

}  // namespace blend
