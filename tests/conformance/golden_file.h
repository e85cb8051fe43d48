// Golden fusion cases: prompts with the numbers that an earlier, independent computation gave.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/abi.h"

namespace blend::test {

struct GoldenCase {
  std::vector<std::vector<int32_t>> chunks;
  std::vector<int32_t> query;
  std::vector<double> full_logprobs;     // [n_vocab], of the last query row
  std::vector<double> reuse_logprobs;    // full reuse
  std::vector<double> blend15_logprobs;  // 15 % recomputed
  std::vector<uint32_t> blend15_selected;
  std::vector<double> v_deviation_layer1;  // [rows of the chunks]
  std::vector<double> k_deviation_layer1;

  Prompt prompt() const;  // the chunks, then the query
};

struct GoldenFile {
  std::string model;  // whose numbers these are
  std::string note;
  std::vector<GoldenCase> cases;
};

// What other implementations make of a random model (golden/families.py).
struct FamilyGolden {
  std::string family;  // of random_families()
  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;       // continuation of the prompt
  std::vector<double> transformers;  // logits after the prompt
  std::vector<double> llama_cpp;     // the same of llama.cpp
};
std::vector<FamilyGolden> read_family_goldens(const std::string& path);

// Throws when the file is not there or not one of ours.
GoldenFile read_golden(const std::string& path);
void write_golden(const GoldenFile& golden, const std::string& path);

}  // namespace blend::test
