#include "documents.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "command.h"

namespace blend_cli {
namespace {

namespace fs = std::filesystem;

std::string normalised(const std::string& raw) {
  constexpr const char* kByteOrderMark = "\xEF\xBB\xBF";
  std::string text;
  text.reserve(raw.size());
  for (size_t i = raw.compare(0, 3, kByteOrderMark) == 0 ? 3 : 0; i < raw.size(); ++i) {
    if (raw[i] == '\r') {
      if (i + 1 < raw.size() && raw[i + 1] == '\n') continue;
      text += '\n';
    } else {
      text += raw[i];
    }
  }
  return text;
}

Document read_document(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string raw((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    throw CommandError(kExitError, "cannot read document '" + path.string() +
                                       "': " + std::strerror(errno) + "; check its permissions");
  }
  return {path.string(), normalised(raw)};
}

std::vector<fs::path> files_below(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (it->is_regular_file(error) && (extension == ".txt" || extension == ".md")) {
      files.push_back(it->path());
    }
  }
  if (error) {
    throw CommandError(kExitError, "cannot list '" + directory.string() + "': " + error.message());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<Document> read_documents(const std::vector<std::string>& paths) {
  std::vector<Document> documents;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      throw CommandError(kExitNotFound, "no such document or directory: '" + path + "'");
    }
    if (fs::is_directory(status)) {
      for (const fs::path& file : files_below(path)) documents.push_back(read_document(file));
    } else {
      documents.push_back(read_document(path));
    }
  }
  const bool any_text = std::any_of(documents.begin(), documents.end(), [](const Document& d) {
    return d.text.find_first_not_of(" \t\n\v\f") != std::string::npos;
  });
  if (!any_text) {
    std::string named;
    for (const std::string& path : paths) named += (named.empty() ? "'" : ", '") + path + "'";
    throw CommandError(kExitNotFound,
                       "no text in " + named + ": give a file, or a directory with .txt or .md");
  }
  return documents;
}

}  // namespace blend_cli
