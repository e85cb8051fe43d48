#include "model/hf_weights.h"

#include <unistd.h>

#include <algorithm>

#include "base/json_reader.h"

namespace blend {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMaxShards = 4096;

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Whether a name stays inside the directory.
bool is_plain_name(const std::string& name) {
  return name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
         name.ends_with(".safetensors");
}

}  // namespace

Result<HfWeights> HfWeights::open(const std::string& directory) {
  HfWeights weights;
  const std::string index_path = directory + "/" + kIndex;
  if (exists(directory + "/" + kSingle)) {
    BLEND_RETURN_IF_ERROR(weights.add_shard(directory, kSingle));
    for (const SafetensorsTensor& t : weights.shards_[0].reader.tensors()) {
      weights.places_.emplace(t.name, Place{0, &t});
    }
  } else if (exists(index_path)) {
    BLEND_ASSIGN(const MappedFile index, MappedFile::open(index_path));
    BLEND_RETURN_IF_ERROR(weights.read_index(directory, index).with_context(kIndex));
  } else {
    return make_error(BLEND_E_NOT_FOUND,
                      "the directory has neither '%s' nor '%s'; libblend reads weights in the "
                      "safetensors format, so save the model in it",
                      kSingle, kIndex);
  }
  weights.name_headless();
  return weights;
}

void HfWeights::name_headless() {
  headless_ = has("embed_tokens.weight") && !has("model.embed_tokens.weight");
  if (!headless_) return;
  std::unordered_map<std::string, Place> named;
  for (const auto& [name, place] : places_) named.emplace("model." + name, place);
  places_ = std::move(named);
}

Status HfWeights::add_shard(const std::string& directory, const std::string& name) {
  BLEND_ASSIGN(MappedFile file, MappedFile::open(directory + "/" + name));
  Result<SafetensorsReader> reader = SafetensorsReader::parse(file.bytes());
  if (!reader.is_ok()) return reader.status().with_context(name);
  shards_.push_back({name, std::move(file), std::move(*reader)});
  return Status::ok();
}

// {"weight_map": {"tensor": "file", ...}}
Status HfWeights::read_index(const std::string& directory, const MappedFile& index) {
  const std::span<const std::byte> bytes = index.bytes();
  BLEND_ASSIGN(const Json json,
               Json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  BLEND_ASSIGN(const JsonView map, JsonView(json, "").need("weight_map"));
  BLEND_ASSIGN(const Json::Object* const entries, map.object());
  std::unordered_map<std::string, size_t> numbers;  // of shards
  for (const auto& [tensor, value] : *entries) {
    const JsonView entry(value, "weight_map['" + tensor.substr(0, 120) + "']");
    BLEND_ASSIGN(const std::string name, entry.string());
    if (!is_plain_name(name)) {
      return entry.error(BLEND_E_FORMAT, "it names no .safetensors file of this directory");
    }
    if (numbers.try_emplace(name, numbers.size()).second) {
      if (numbers.size() > kMaxShards) return map.error(BLEND_E_FORMAT, "too many files");
      BLEND_RETURN_IF_ERROR(add_shard(directory, name));
    }
  }
  // Only now are the shards at their final addresses.
  for (const auto& [tensor, value] : *entries) {
    const size_t shard = numbers.at(*value.string());
    const SafetensorsTensor* const t = shards_[shard].reader.tensor(tensor);
    if (t == nullptr) {
      return make_error(BLEND_E_FORMAT, "tensor '%.120s' is not in '%s', where the index puts it",
                        tensor.c_str(), shards_[shard].name.c_str());
    }
    places_.emplace(tensor, Place{shard, t});
  }
  // transformers also loads tensors that the index leaves out, so they count here too.
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    for (const SafetensorsTensor& t : shards_[shard].reader.tensors()) {
      places_.emplace(t.name, Place{shard, &t});
    }
  }
  return Status::ok();
}

Result<HfTensor> HfWeights::raw(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is missing", name.c_str());
  }
  const SafetensorsTensor& t = *place->second.tensor;
  const std::byte* const file = shards_[place->second.shard].file.bytes().data();
  return HfTensor{name, t.dtype, t.shape, file + t.offset};
}

Result<TensorView> HfWeights::view(const std::string& name) const {
  BLEND_ASSIGN(HfTensor t, raw(name));
  return hf_view(std::move(t));
}

Result<TensorView> hf_view(HfTensor t) {
  TensorView view;
  if (t.dtype == "F32") {
    view.dtype = DType::f32;
  } else if (t.dtype == "F16") {
    view.dtype = DType::f16;
  } else if (t.dtype == "BF16") {
    view.dtype = DType::bf16;
  } else {
    return make_error(BLEND_E_UNSUPPORTED, "tensor '%s' is %.20s; libblend reads F32, F16 and BF16",
                      t.name.c_str(), t.dtype.c_str());
  }
  view.name = std::move(t.name);
  view.shape = std::move(t.shape);
  view.data = t.data;
  return view;
}

std::vector<std::string> HfWeights::names() const {
  std::vector<std::string> names;
  names.reserve(places_.size());
  for (const auto& [name, place] : places_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace blend
