#include "model/hf_quantization.h"

#include <string>

namespace blend {
namespace {

constexpr int64_t kMostInBlock = 1 << 20;

Status refuse(const JsonView& value, const char* wanted) {
  return make_error(BLEND_E_UNSUPPORTED, "%s: libblend reads %s alone", value.path().c_str(),
                    wanted);
}

// A member that must have this text where it is there.
Status expect(const JsonView& of, const char* name, const char* wanted) {
  BLEND_ASSIGN(const std::string text, of.string_or(name, wanted));
  return text == wanted ? Status::ok() : refuse(*of.get(name), wanted);
}

Status expect_absent(const JsonView& of, const char* name) {
  const std::optional<JsonView> value = of.get(name);
  if (!value) return Status::ok();
  const Json::Object* const members = value->value().object();
  if (members != nullptr && members->empty()) return Status::ok();
  return value->error(BLEND_E_UNSUPPORTED,
                      "libblend reads weights that are quantized and nothing else");
}

Result<DType> read_dtype(const JsonView& root) {
  BLEND_ASSIGN(const std::string old_name, root.string_or("torch_dtype", "bfloat16"));
  BLEND_ASSIGN(const std::string name, root.string_or("dtype", old_name.c_str()));
  if (name == "float32") return DType::f32;
  return name == "float16" ? DType::f16 : DType::bf16;
}

Status read_fp8(const JsonView& config, HfQuantization& out) {
  out.method = HfQuantization::Method::fp8;
  BLEND_RETURN_IF_ERROR(expect(config, "fmt", "e4m3"));
  BLEND_RETURN_IF_ERROR(expect(config, "activation_scheme", "dynamic"));
  const std::optional<JsonView> block = config.get("weight_block_size");
  if (!block) {
    return config.error(BLEND_E_UNSUPPORTED,
                        "without weight_block_size a matrix has one scale; libblend reads blocks");
  }
  BLEND_ASSIGN(const Json::Array* const sizes, block->array());
  if (sizes->size() != 2) return block->error(BLEND_E_FORMAT, "it must be two numbers");
  BLEND_ASSIGN(const int64_t rows, block->element(0).integer(1, kMostInBlock));
  BLEND_ASSIGN(const int64_t cols, block->element(1).integer(1, kMostInBlock));
  out.block_rows = static_cast<uint32_t>(rows);
  out.block_cols = static_cast<uint32_t>(cols);
  return Status::ok();
}

Status read_packed(const JsonView& config, HfQuantization& out) {
  out.method = HfQuantization::Method::packed;
  BLEND_RETURN_IF_ERROR(expect(config, "format", "pack-quantized"));
  BLEND_RETURN_IF_ERROR(expect_absent(config, "kv_cache_scheme"));
  if (const std::optional<JsonView> sparsity = config.get("sparsity_config")) {
    BLEND_RETURN_IF_ERROR(expect(*sparsity, "format", "dense"));
  }
  BLEND_ASSIGN(const JsonView groups, config.need("config_groups"));
  BLEND_ASSIGN(const Json::Object* const all, groups.object());
  if (all->size() != 1) {
    return groups.error(BLEND_E_UNSUPPORTED, "libblend reads weights that are all quantized alike");
  }
  const JsonView group(all->begin()->second, groups.path() + "." + all->begin()->first);
  BLEND_RETURN_IF_ERROR(expect(group, "format", "pack-quantized"));
  BLEND_RETURN_IF_ERROR(expect_absent(group, "input_activations"));
  BLEND_RETURN_IF_ERROR(expect_absent(group, "output_activations"));
  BLEND_ASSIGN(const JsonView weights, group.need("weights"));
  BLEND_RETURN_IF_ERROR(expect(weights, "type", "int"));
  BLEND_ASSIGN(const JsonView bits, weights.need("num_bits"));
  BLEND_ASSIGN(const int64_t n, bits.integer(1, 64));
  if (n != 4 && n != 8) return refuse(bits, "4 and 8");
  out.bits = static_cast<uint32_t>(n);
  BLEND_ASSIGN(const bool symmetric, weights.boolean_or("symmetric", true));
  if (!symmetric) return refuse(*weights.get("symmetric"), "symmetric weights");
  BLEND_ASSIGN(const std::string order, weights.string_or("actorder", "static"));
  if (order != "static" && order != "weight") return refuse(*weights.get("actorder"), "static");
  BLEND_ASSIGN(const JsonView strategy, weights.need("strategy"));
  BLEND_ASSIGN(const std::string kind, strategy.string());
  if (kind == "channel") return Status::ok();
  if (kind != "group") return refuse(strategy, "group and channel");
  BLEND_ASSIGN(const JsonView size, weights.need("group_size"));
  BLEND_ASSIGN(const int64_t elements, size.integer(1, kMostInBlock));
  out.group = static_cast<uint32_t>(elements);
  return Status::ok();
}

}  // namespace

Result<HfQuantization> read_hf_quantization(const JsonView& root) {
  HfQuantization out;
  const std::optional<JsonView> config = root.get("quantization_config");
  if (!config) return out;
  BLEND_ASSIGN(out.dtype, read_dtype(root));
  BLEND_ASSIGN(const std::string method, config->string_or("quant_method", ""));
  if (method == "fp8") {
    BLEND_RETURN_IF_ERROR(read_fp8(*config, out));
  } else if (method == "compressed-tensors") {
    BLEND_RETURN_IF_ERROR(read_packed(*config, out));
  } else if (method == "mxfp4") {
    out.method = HfQuantization::Method::mxfp4;
  } else {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "quantization_config: weights quantized by '%.40s' are not supported; libblend "
        "reads fp8, compressed-tensors and mxfp4 here, and quantized GGUF files",
        method.c_str());
  }
  return out;
}

}  // namespace blend
