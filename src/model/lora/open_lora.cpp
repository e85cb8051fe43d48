// Chooses the reader for an adapter.
#include <unistd.h>

#include "base/files/mapped_file.h"
#include "model/gguf_reader.h"
#include "model/hf_source.h"
#include "model/json_file.h"
#include "model/lora/lora_adapter.h"

namespace blend {
namespace {

constexpr const char* kPeftConfig = "adapter_config.json";
constexpr const char* kPeftWeights = "adapter_model.safetensors";
constexpr const char* kPeftPickle = "adapter_model.bin";

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Result<LoraAdapter> open_peft(const std::string& path, const ModelConfig& config, HeadRows rows) {
  const std::string weights_path = path + "/" + kPeftWeights;
  if (!is_there(weights_path) && is_there(path + "/" + kPeftPickle)) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the directory has '%s', a pickle, which libblend does not read; save the "
                      "adapter in the safetensors format",
                      kPeftPickle);
  }
  BLEND_ASSIGN(const MappedFile json, MappedFile::open(path + "/" + kPeftConfig));
  BLEND_ASSIGN(const MappedFile weights, MappedFile::open(weights_path));
  return read_peft_lora(text_of(json), weights.bytes(), config, rows);
}

}  // namespace

Result<LoraAdapter> open_lora_adapter(const std::string& path, const ModelConfig& config,
                                      HeadRows rows) {
  if (config.mixer.scans() || config.latent.any()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "adapters of a %s are not supported: merge it into the model",
                      config.architecture.c_str());
  }
  if (is_directory(path)) return open_peft(path, config, rows);
  BLEND_ASSIGN(const MappedFile file, MappedFile::open(path));
  if (GgufReader::has_magic(file.bytes())) return read_gguf_lora(file.bytes(), config, rows);
  return make_error(BLEND_E_FORMAT,
                    "it does not begin with 'GGUF'; libblend opens adapters that are GGUF files, "
                    "and PEFT directories (%s, %s) by the directory's own name",
                    kPeftConfig, kPeftWeights);
}

}  // namespace blend
