#include "support/golden_tokens.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace blend::test {
namespace {

using nlohmann::json;

std::string read_golden(const std::string& name) {
  const std::string path = std::string(BLEND_GOLDEN_TOKENS_DIR) + "/" + name;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

GoldenTokenizer golden_tokenizer(const std::string& kind) {
  GoldenTokenizer golden;
  golden.json = read_golden(kind + ".tokenizer.json");
  const json texts = json::parse(read_golden("corpus.json"));
  const json ids = json::parse(read_golden(kind + ".ids.json"));
  if (texts.size() != ids.size())
    throw std::runtime_error(kind + ": texts and ids differ in number");
  for (size_t i = 0; i < texts.size(); ++i) {
    GoldenCase c;
    c.text = texts[i].get<std::string>();
    c.special = ids[i].at("special").get<std::vector<int32_t>>();
    c.plain = ids[i].value("plain", c.special);
    c.decoded = ids[i].value("decoded", c.text);
    golden.cases.push_back(std::move(c));
  }
  return golden;
}

GgufVocabulary gguf_vocabulary(const GoldenTokenizer& golden) {
  const json file = json::parse(golden.json);
  GgufVocabulary v;
  const auto set = [&](size_t id, const std::string& text, int32_t type) {
    if (v.tokens.size() <= id) {
      v.tokens.resize(id + 1);
      v.types.resize(id + 1, 1);
    }
    v.tokens[id] = text;
    v.types[id] = type;
  };
  for (const auto& [text, id] : file.at("model").at("vocab").items()) set(id, text, 1);
  for (const json& a : file.at("added_tokens")) {
    set(a.at("id"), a.at("content"), a.at("special").get<bool>() ? 3 : 4);
  }
  for (const json& m : file.at("model").at("merges")) {
    v.merges.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
  }
  return v;
}

}  // namespace blend::test
