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
constexpr const char* kDigit = R"(\p{N})";
// llama.cpp's default where a file names no pre-tokenizer.
constexpr const char* kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr const char* kDefaultNumber = R"(\p{N}+)";
constexpr const char* kDefaultDigits = R"([0-9][0-9][0-9])";

struct Family {
  std::string_view name;
  std::array<const char*, 4> patterns;  // one after the other, up to the first null
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
    {"lfm2", {kLlama3}, true, true},
    {"glm4", {kLlama3}, true, false},
    {"chatglm-bpe", {kLlama3}, false, false},
    {"dbrx", {kLlama3}, false, false},
    {"smaug-bpe", {kLlama3}, false, false},
    {"qwen2", {kQwen2}, false, false, true},
    {"deepseek-r1-qwen", {kQwen2}, false, false},
    {"gpt-2", {kGpt2Pattern}, false, false},
    {"phi-2", {kGpt2Pattern}, false, false},
    {"olmo", {kGpt2Pattern}, false, false},
    {"exaone4", {kGpt2Pattern}, false, false},
    {"granite-docling", {kGpt2Pattern}, false, false},
    {"seed-coder", {kSeed}, false, false},
    {"hunyuan-dense", {kUpToThreeDigits, kHanAndKana, kDeepSeek3}, false, false},
    {"deepseek-v3", {kUpToThreeDigits, kHanAndKana, kDeepSeek3}, false, false},
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
