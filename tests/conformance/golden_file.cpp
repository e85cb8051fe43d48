#include "conformance/golden_file.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace blend::test {
namespace {

// The file's precision is eight decimals; more would only make diffs larger.
std::vector<double> rounded(const std::vector<double>& values) {
  std::vector<double> out;
  for (const double v : values) out.push_back(std::round(v * 1e8) / 1e8);
  return out;
}

}  // namespace

Prompt GoldenCase::prompt() const {
  Prompt p;
  for (const auto& c : chunks) p.push_back({BLEND_SEGMENT_CHUNK, c, false});
  p.push_back({BLEND_SEGMENT_QUESTION, query, false});
  return p;
}

GoldenFile read_golden(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path);
  const nlohmann::json j = nlohmann::json::parse(in);
  GoldenFile file{j.at("model"), j.at("note"), {}};
  for (const auto& c : j.at("cases")) {
    GoldenCase g;
    c.at("chunks").get_to(g.chunks);
    c.at("query").get_to(g.query);
    c.at("full_logprobs").get_to(g.full_logprobs);
    c.at("reuse_logprobs").get_to(g.reuse_logprobs);
    c.at("blend15_logprobs").get_to(g.blend15_logprobs);
    c.at("blend15_selected").get_to(g.blend15_selected);
    c.at("v_deviation_layer1").get_to(g.v_deviation_layer1);
    c.at("k_deviation_layer1").get_to(g.k_deviation_layer1);
    file.cases.push_back(std::move(g));
  }
  return file;
}

std::vector<FamilyGolden> read_family_goldens(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path);
  std::vector<FamilyGolden> all;
  for (const auto& c : nlohmann::json::parse(in)) {
    FamilyGolden g;
    c.at("family").get_to(g.family);
    c.at("prompt").get_to(g.prompt);
    c.at("greedy").get_to(g.greedy);
    c.at("transformers").get_to(g.transformers);
    c.at("llama_cpp").get_to(g.llama_cpp);
    all.push_back(std::move(g));
  }
  return all;
}

void write_golden(const GoldenFile& golden, const std::string& path) {
  std::ofstream out(path);
  // One line a field, so that a diff shows which numbers moved.
  const auto field = [&](const char* name, const nlohmann::json& value, const char* end) {
    out << nlohmann::json(name) << ": " << value << end;
  };
  out << "{\n";
  field("model", golden.model, ",\n");
  field("note", golden.note, ",\n");
  out << "\"cases\": [";
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    const GoldenCase& g = golden.cases[i];
    out << (i == 0 ? "{\n" : ", {\n");
    field("chunks", g.chunks, ",\n");
    field("query", g.query, ",\n");
    field("full_logprobs", rounded(g.full_logprobs), ",\n");
    field("reuse_logprobs", rounded(g.reuse_logprobs), ",\n");
    field("blend15_logprobs", rounded(g.blend15_logprobs), ",\n");
    field("blend15_selected", g.blend15_selected, ",\n");
    field("v_deviation_layer1", rounded(g.v_deviation_layer1), ",\n");
    field("k_deviation_layer1", rounded(g.k_deviation_layer1), "\n}");
  }
  out << "]\n}\n";
  if (!out) throw std::runtime_error("cannot write " + path);
}

}  // namespace blend::test
