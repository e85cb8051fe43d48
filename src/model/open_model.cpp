// Which reader a model file is for.
#include "base/mapped_file.h"
#include "model/llama_source.h"

namespace blend {

Result<std::unique_ptr<ModelSource>> open_model_source(const std::string& path) {
  BLEND_ASSIGN(MappedFile opened, MappedFile::open(path));
  const auto file = std::make_shared<const MappedFile>(std::move(opened));
  const std::string where = "model '" + path + "'";
  if (file->bytes().empty()) {
    return make_error(BLEND_E_FORMAT, "%s: the file is empty", where.c_str());
  }
  if (!GgufReader::has_magic(file->bytes())) {
    return make_error(
        BLEND_E_FORMAT,
        "%s: it does not begin with 'GGUF'; libblend opens GGUF files, so convert the "
        "model to GGUF (F32, F16 or BF16)",
        where.c_str());
  }
  Result<std::unique_ptr<ModelSource>> source = open_llama_gguf(file->bytes(), file);
  if (!source.is_ok()) return source.status().with_context(where);
  return source;
}

}  // namespace blend
