// A JSON file of a model's directory.
#pragma once

#include <string>
#include <string_view>

#include "base/files/mapped_file.h"
#include "base/json.h"
#include "base/status.h"

namespace blend {

inline std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Null if there is none.
inline Result<Json> read_json(const std::string& directory, const char* name) {
  Result<MappedFile> file = MappedFile::open(directory + "/" + name);
  if (file.status().code() == BLEND_E_NOT_FOUND) return Json();
  if (!file.is_ok()) return file.status();
  Result<Json> json = Json::parse(text_of(*file));
  if (!json.is_ok()) return json.status().with_context(name);
  return json;
}

}  // namespace blend
