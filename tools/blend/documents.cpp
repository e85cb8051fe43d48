#include "documents.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "command.h"
#include "progress.h"
#include "read_file.h"
#include "table.h"

namespace blend_cli {
namespace {

namespace fs = std::filesystem;

// More than anyone reads, and less than the memory of the process that reads it.
constexpr size_t kMostBytes = size_t{1} << 30;

// Files of one kind that were left out of directories.
struct LeftOut {
  size_t n = 0;
  std::string first;

  void add(const fs::path& path, const std::string& why = {}) {
    if (n++ == 0) first = "'" + path.string() + "'" + (why.empty() ? "" : ": " + why);
  }
  void tell(const char* one, const char* several) const {
    if (n == 0) return;
    print_note(format("left out: %zu %s%s%s", n, n == 1 ? one : several,
                      n == 1 ? ", " : ", the first ", first.c_str()));
  }
};

class Reader {
 public:
  void read(const std::string& path);
  void tell() const;
  std::vector<Document> documents;

 private:
  void read_named(const fs::path& path);
  void read_found(const fs::path& path);
  void walk(const fs::path& root);
  void list(const fs::path& directory);
  void meet(const fs::directory_entry& entry);

  // Files of the directory that is walked.
  std::vector<fs::path> files_;
  std::vector<fs::path> below_;
  std::set<fs::path> links_;                       // to directories
  std::set<std::pair<dev_t, ino_t>> directories_;  // that were listed

  LeftOut hidden_, others_, no_text_, again_, special_;
};

std::string bytes_of(const fs::path& path) {
  FileBytes file = read_file(path.string(), kMostBytes);
  if (file.error == 0) return std::move(file.bytes);
  throw CommandError(kExitError, "cannot read document '" + path.string() + "': " +
                                     (file.error == EFBIG ? "it has more than 1 GiB; divide it"
                                                          : std::string(std::strerror(file.error)) +
                                                                "; check its permissions"));
}

bool is_document(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending == ".txt" || ending == ".md";
}

void Reader::read_named(const fs::path& path) {
  Document document{path.string(), {}};
  std::string why;
  if (!decode_document(bytes_of(path), document.text, why)) {
    throw CommandError(kExitError, "document '" + path.string() + "' is not text: " + why);
  }
  documents.push_back(std::move(document));
}

void Reader::read_found(const fs::path& path) {
  Document document{path.string(), {}};
  std::string why;
  if (decode_document(bytes_of(path), document.text, why)) {
    documents.push_back(std::move(document));
  } else {
    no_text_.add(path, why);
  }
}

// Lists directories before links to them, so that a document is named by its own directory where
// that is below the root too. Each directory is listed once, so links cannot form circles.
void Reader::walk(const fs::path& root) {
  files_.clear();
  directories_.clear();
  below_ = {root};
  while (!below_.empty() || !links_.empty()) {
    fs::path next;
    if (!below_.empty()) {
      next = std::move(below_.back());
      below_.pop_back();
    } else {
      next = std::move(links_.extract(links_.begin()).value());
    }
    list(next);
  }
  std::sort(files_.begin(), files_.end());
  for (const fs::path& file : files_) read_found(file);
}

void Reader::list(const fs::path& directory) {
  const auto refuse = [&](const std::string& why) {
    throw CommandError(kExitError, "cannot list '" + directory.string() + "': " + why);
  };
  struct stat info = {};
  if (::stat(directory.c_str(), &info) != 0) refuse(std::strerror(errno));
  if (!directories_.emplace(info.st_dev, info.st_ino).second) {
    again_.add(directory);
    return;
  }
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(*it);
  }
  if (error) refuse(error.message());
  std::sort(entries.begin(), entries.end());  // notes name the first
  for (const fs::directory_entry& entry : entries) meet(entry);
}

void Reader::meet(const fs::directory_entry& entry) {
  const fs::path& path = entry.path();
  if (path.filename().string().front() == '.') return hidden_.add(path);
  std::error_code ignored;
  if (entry.is_directory(ignored)) {
    if (entry.is_symlink(ignored)) {
      links_.insert(path);
    } else {
      below_.push_back(path);
    }
  } else if (!is_document(path)) {
    others_.add(path);
  } else if (entry.is_regular_file(ignored)) {
    files_.push_back(path);
  } else {
    special_.add(path);
  }
}

void Reader::read(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw CommandError(kExitNotFound, "no such document or directory: '" + path + "'");
  }
  if (fs::is_directory(status)) {
    walk(path);
  } else {
    read_named(path);
  }
}

void Reader::tell() const {
  hidden_.tell("hidden file or directory (named, it is read)",
               "hidden files and directories (named, they are read)");
  others_.tell("file that ends neither in .txt nor in .md",
               "files that end neither in .txt nor in .md");
  no_text_.tell("file that is not text", "files that are not text");
  again_.tell("link to a directory that is read already",
              "links to directories that are read already");
  special_.tell("name without a file", "names without a file");
}

}  // namespace

std::vector<Document> read_documents(const std::vector<std::string>& paths) {
  Reader reader;
  interruptibly([&] {
    for (const std::string& path : paths) reader.read(path);
  });
  reader.tell();
  const bool any_text = std::any_of(
      reader.documents.begin(), reader.documents.end(),
      [](const Document& d) { return d.text.find_first_not_of(" \t\n\v\f") != std::string::npos; });
  if (!any_text) {
    std::string named;
    for (const std::string& path : paths) named += (named.empty() ? "'" : ", '") + path + "'";
    throw CommandError(kExitNotFound,
                       "no text in " + named + ": give a file, or a directory with .txt or .md");
  }
  return std::move(reader.documents);
}

}  // namespace blend_cli
