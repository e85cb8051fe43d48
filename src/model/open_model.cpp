// Chooses the reader for a model file.
#include <string_view>

#include "base/files/mapped_file.h"
#include "model/hf_source.h"
#include "model/llama_source.h"

namespace blend {
namespace {

Status not_a_model(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs")) {
    return make_error(
        BLEND_E_FORMAT,
        "it is the pointer that Git LFS puts in a file's place; fetch the file itself "
        "('git lfs pull')");
  }
  return make_error(BLEND_E_FORMAT,
                    "it does not begin with 'GGUF'; libblend opens GGUF files, and Hugging Face "
                    "directories (config.json, tokenizer.json, model.safetensors) by the "
                    "directory's own name");
}

}  // namespace

Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path) {
  if (is_directory(path)) return open_hf_directory(path);
  BLEND_ASSIGN(MappedFile opened, MappedFile::open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(opened));
  if (file->bytes().empty()) return make_error(BLEND_E_FORMAT, "the file is empty");
  if (!GgufReader::has_magic(file->bytes())) return not_a_model(file->bytes());
  return open_llama_gguf(file->bytes(), file);
}

}  // namespace blend
