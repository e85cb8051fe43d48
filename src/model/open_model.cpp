// Which reader a model file is for.
#include "base/mapped_file.h"
#include "model/hf_source.h"
#include "model/llama_source.h"

namespace blend {

Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path) {
  if (is_directory(path)) {
    Result<std::unique_ptr<ModelSource>> source = open_hf_directory(path);
    if (!source.is_ok()) return source.status().with_context("model '" + path + "'");
    return source;
  }
  BLEND_ASSIGN(MappedFile opened, MappedFile::open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(opened));
  const std::string where = "model '" + path + "'";
  if (file->bytes().empty()) {
    return make_error(BLEND_E_FORMAT, "%s: the file is empty", where.c_str());
  }
  if (!GgufReader::has_magic(file->bytes())) {
    return make_error(
        BLEND_E_FORMAT,
        "%s: it does not begin with 'GGUF'; libblend opens GGUF files and Hugging Face directories "
        "(config.json, tokenizer.json, model.safetensors)",
        where.c_str());
  }
  Result<std::unique_ptr<ModelSource>> source = open_llama_gguf(file->bytes(), file);
  if (!source.is_ok()) return source.status().with_context(where);
  return source;
}

}  // namespace blend
