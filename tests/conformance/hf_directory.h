// Copies of the small Hugging Face directories of hf/, which a test changes and opens.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "conformance/abi.h"
#include "support/temp_dir.h"

namespace blend::test {

inline const std::string kModels = std::string(BLEND_TEST_SOURCE_DIR) + "/conformance/hf/";
inline const std::string kTokenizers =
    std::string(BLEND_TEST_SOURCE_DIR) + "/conformance/tokenizers/";

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  return nlohmann::json::parse(in);
}

inline void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

inline std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A copy of a model with a tokenizer beside it.
class Directory {
 public:
  explicit Directory(const std::string& model) : path_(dir_.file(model)) {
    std::filesystem::copy(kModels + model, path_, std::filesystem::copy_options::recursive);
    std::filesystem::copy(kTokenizers + "qwen2.tokenizer.json", file("tokenizer.json"));
  }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Changes a JSON file by `change(json&)`.
  template <typename Change>
  void edit(const std::string& name, const Change& change) const {
    nlohmann::json j = read_json(file(name));
    change(j);
    write(file(name), j.dump());
  }

 private:
  TempDir dir_;
  std::string path_;
};

// Changes a safetensors file by `change(header, data)`.
template <typename Change>
void edit_tensors(const std::string& path, const Change& change) {
  const std::string bytes = read(path);
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), sizeof n);
  nlohmann::json header = nlohmann::json::parse(bytes.substr(sizeof n, n));
  std::string data = bytes.substr(sizeof n + n);
  change(header, data);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  write(path, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data);
}

// A tensor of zeros as large as another.
inline void add_tensor(nlohmann::json& header, std::string& data, const std::string& name,
                       nlohmann::json like) {
  const auto bytes =
      like.at("data_offsets")[1].get<size_t>() - like.at("data_offsets")[0].get<size_t>();
  like["data_offsets"] = {data.size(), data.size() + bytes};
  data.append(bytes, '\0');
  header[name] = std::move(like);
}

inline std::string fingerprint(const Ctx& ctx, const std::string& path) {
  const Model model = open_model(ctx, path);
  blend_model_info info{};
  info.struct_size = sizeof info;
  blend_error* error = nullptr;
  const int32_t code = blend_model_get_info(model.get(), &info, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_OK);
  return {reinterpret_cast<const char*>(info.fingerprint), sizeof info.fingerprint};
}

}  // namespace blend::test
