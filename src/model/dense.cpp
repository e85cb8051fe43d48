#include "model/dense.h"

#include <algorithm>
#include <cctype>

#include "base/json_reader.h"
#include "model/json_file.h"

namespace blend {
namespace {

// The last part of "sentence_transformers.models.Dense".
std::string last_part(const std::string& type) { return type.substr(type.find_last_of('.') + 1); }

std::string shown_part(const std::string& text) {
  std::string out = text.substr(0, 80);
  for (char& c : out) c = c >= ' ' && c < 127 ? c : '?';
  return out;
}

// A folder of the directory itself.
bool is_folder_name(const std::string& path) {
  return !path.empty() && path[0] != '.' &&
         std::all_of(path.begin(), path.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

Status open_one(const std::string& directory, const std::string& folder, HfDense& out) {
  const std::string name = folder + "/config.json";
  BLEND_ASSIGN(const Json json, read_json(directory, name.c_str()));
  if (json.is_null()) return make_error(BLEND_E_NOT_FOUND, "'%s' is missing", name.c_str());
  const JsonView root(json, name);
  BLEND_ASSIGN(const bool bias, root.boolean_or("bias", true));
  BLEND_ASSIGN(const std::string activation, root.string_or("activation_function", "Tanh"));
  if (bias || last_part(activation) != "Identity") {
    return make_error(BLEND_E_UNSUPPORTED,
                      "'%s' asks for %s after pooling; libblend knows matrices alone", name.c_str(),
                      bias ? "a bias" : shown_part(last_part(activation)).c_str());
  }
  Result<HfTensors> file = HfTensors::open(directory + "/" + folder, {});
  if (!file.is_ok()) return file.status().with_context(folder);
  out.files.push_back(std::move(*file));
  Result<TensorView> matrix = out.files.back().view("linear.weight");
  if (!matrix.is_ok()) return matrix.status().with_context(folder);
  matrix->name = folder + "/" + matrix->name;
  out.matrices.push_back(std::move(*matrix));
  const std::vector<std::string> others = out.files.back().unused();
  if (others.empty()) return Status::ok();
  return make_error(BLEND_E_UNSUPPORTED, "'%s' has a tensor '%s', which libblend does not use",
                    folder.c_str(), shown_part(others[0]).c_str());
}

}  // namespace

Status check_dense(std::span<const TensorView> matrices, const ModelConfig& config) {
  int64_t width = config.d_model;
  for (const TensorView& m : matrices) {
    if (m.shape.size() != 2 || m.cols() != width) {
      return make_error(BLEND_E_FORMAT, "tensor '%s' takes %lld elements, and is given %lld",
                        m.name.c_str(), static_cast<long long>(m.cols()),
                        static_cast<long long>(width));
    }
    width = m.rows();
  }
  if (width == config.d_model) return Status::ok();
  return make_error(BLEND_E_UNSUPPORTED,
                    "tensor '%s' makes vectors of %lld elements in a model of %u: libblend's have "
                    "the model's width",
                    matrices.back().name.c_str(), static_cast<long long>(width), config.d_model);
}

Result<HfDense> open_hf_dense(const std::string& directory) {
  constexpr const char* kName = "modules.json";
  constexpr size_t kMost = 16;
  HfDense out;
  BLEND_ASSIGN(const Json json, read_json(directory, kName));
  if (json.is_null()) return out;
  const JsonView root(json, kName);
  BLEND_ASSIGN(const Json::Array* const modules, root.array());
  for (size_t i = 0; i < modules->size(); ++i) {
    const JsonView module = root.element(i);
    BLEND_ASSIGN(const JsonView type, module.need("type"));
    BLEND_ASSIGN(const std::string full, type.string());
    const std::string kind = last_part(full);
    if (kind == "Transformer" || kind == "Pooling" || kind == "Normalize") continue;
    BLEND_ASSIGN(const std::string path, module.string_or("path", ""));
    if (kind != "Dense" || !is_folder_name(path) || out.files.size() == kMost) {
      return make_error(BLEND_E_UNSUPPORTED, "%s lists '%s' in '%s', which libblend does not know",
                        kName, shown_part(kind).c_str(), shown_part(path).c_str());
    }
    BLEND_RETURN_IF_ERROR(open_one(directory, path, out));
  }
  return out;
}

}  // namespace blend
