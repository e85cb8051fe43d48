// Quantized Hugging Face directories: what becomes of their tensors, against what transformers and
// compressed-tensors make of the same bytes (golden/hf_tensors.py), and what is refused.
#include "model/hf_tensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temp_dir.h"

namespace blend {
namespace {

using nlohmann::json;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Result<HfQuantization> quantization_of(const json& config) {
  BLEND_ASSIGN(const Json parsed, Json::parse(config.dump()));
  return read_hf_quantization(JsonView(parsed, ""));
}

Result<HfTensors> open(const test::TempDir& dir, const std::string& file,
                       const HfQuantization& how) {
  std::ofstream(dir.file("model.safetensors"), std::ios::binary) << file;
  return HfTensors::open(dir.path(), how);
}

json golden() {
  std::ifstream file(BLEND_TEST_SOURCE_DIR "/unit/model/golden/hf_tensors.json");
  return json::parse(file);
}

Result<TensorView> view_of(HfTensors& tensors, const std::string& name) {
  return name == "mxfp4" ? tensors.experts("m.experts", true) : tensors.view("m.weight");
}

TEST(HfTensors, HaveTheValuesThatOthersGiveThem) {
  size_t n = 0, as_blocks = 0;
  for (const json& c : golden()) {
    const std::string name = c["name"];
    SCOPED_TRACE(name);
    const test::TempDir dir;
    auto how =
        quantization_of({{"dtype", c["dtype"]}, {"quantization_config", c["quantization_config"]}});
    ASSERT_TRUE(how.is_ok()) << how.status().message();
    auto tensors = open(dir, from_hex(c["file"]), *how);
    ASSERT_TRUE(tensors.is_ok()) << tensors.status().message();
    auto view = view_of(*tensors, name);
    ASSERT_TRUE(view.is_ok()) << view.status().message();
    EXPECT_EQ(view->shape, c["shape"].get<std::vector<int64_t>>());
    const std::string bytes = from_hex(c["values"]);
    std::vector<float> want(bytes.size() / sizeof(float)), got(want.size());
    std::memcpy(want.data(), bytes.data(), bytes.size());
    ASSERT_EQ(static_cast<size_t>(view->elements()), want.size());
    decode_weights(view->dtype, view->blocks, view->data, got.size(), got.data());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;
    EXPECT_EQ(tensors->unused(), std::vector<std::string>());
    // It is made once.
    EXPECT_EQ(view_of(*tensors, name)->data, view->data);
    ++n;
    as_blocks += view->blocks == BlockType::none ? 0 : 1;
  }
  EXPECT_EQ(n, 11u);
  // Those by 32, 64 and a row of 96 elements whose scales f16 holds, and MXFP4.
  EXPECT_EQ(as_blocks, 5u);
}

TEST(HfTensors, RefuseScalesOfOtherShapes) {
  for (const json& c : golden()) {
    const std::string name = c["name"];
    SCOPED_TRACE(name);
    auto how =
        quantization_of({{"dtype", c["dtype"]}, {"quantization_config", c["quantization_config"]}});
    ASSERT_TRUE(how.is_ok());
    std::string file = from_hex(c["file"]);
    if (name.starts_with("fp8")) how->block_rows = 5;
    if (name.starts_with("int")) how->group = how->group == 8 ? 32 : 8;
    if (name == "mxfp4") {  // as many bytes, in another shape
      const size_t at = file.find("[3,8,2,16]");
      ASSERT_NE(at, std::string::npos);
      file.replace(at, 10, "[3,8,4,08]");
      file.replace(file.find(",08]"), 4, ",8] ");
    }
    const test::TempDir dir;
    auto tensors = open(dir, file, *how);
    ASSERT_TRUE(tensors.is_ok()) << tensors.status().message();
    auto view = view_of(*tensors, name);
    EXPECT_EQ(view.status().code(), BLEND_E_FORMAT);
    EXPECT_NE(view.status().message().find("has the shape"), std::string::npos)
        << view.status().message();
  }
}

// A method that is not read is named, and what of a method is not.
TEST(HfQuantization, RefusesWhatIsNotReadByName) {
  const json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const json weights = {{"num_bits", 4}, {"type", "int"}, {"strategy", "channel"}};
  const json packed = {{"quant_method", "compressed-tensors"},
                       {"format", "pack-quantized"},
                       {"config_groups", {{"group_0", {{"weights", weights}}}}}};
  const auto changed = [](json config, const char* where, const json& value) {
    config[json::json_pointer(where)] = value;
    return config;
  };
  const std::pair<json, const char*> cases[] = {
      {{{"quant_method", "gptq"}, {"bits", 4}}, "'gptq'"},
      {{{"quant_method", "awq"}}, "'awq'"},
      {{{"load_in_4bit", true}}, "''"},
      {{{"quant_method", "fp8"}}, "weight_block_size"},
      {changed(fp8, "/activation_scheme", "static"), "activation_scheme"},
      {changed(fp8, "/fmt", "e5m2"), "fmt"},
      {changed(packed, "/format", "float-quantized"), "format"},
      {changed(packed, "/kv_cache_scheme", {{"num_bits", 8}}), "kv_cache_scheme"},
      {changed(packed, "/sparsity_config", {{"format", "sparse-24-bitmask"}}), "sparsity_config"},
      {changed(packed, "/config_groups/group_1", {{"weights", weights}}), "config_groups"},
      {changed(packed, "/config_groups/group_0/format", "nvfp4-pack-quantized"), "format"},
      {changed(packed, "/config_groups/group_0/input_activations", {{"num_bits", 8}}),
       "input_activations"},
      {changed(packed, "/config_groups/group_0/weights/num_bits", 3), "num_bits"},
      {changed(packed, "/config_groups/group_0/weights/type", "float"), "type"},
      {changed(packed, "/config_groups/group_0/weights/symmetric", false), "symmetric"},
      {changed(packed, "/config_groups/group_0/weights/actorder", "group"), "actorder"},
      {changed(packed, "/config_groups/group_0/weights/strategy", "tensor"), "strategy"},
  };
  for (const auto& [config, named] : cases) {
    SCOPED_TRACE(config.dump());
    const auto got = quantization_of({{"quantization_config", config}});
    ASSERT_EQ(got.status().code(), BLEND_E_UNSUPPORTED);
    EXPECT_NE(got.status().message().find(named), std::string::npos) << got.status().message();
  }
  for (const json& config : {fp8, packed, json{{"quant_method", "mxfp4"}}}) {
    EXPECT_TRUE(quantization_of({{"quantization_config", config}}).is_ok()) << config.dump();
  }
  EXPECT_EQ(quantization_of(json::object())->method, HfQuantization::Method::none);
}

}  // namespace
}  // namespace blend
