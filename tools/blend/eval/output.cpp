#include "eval/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "command.h"

namespace blend_cli {
namespace {

[[noreturn]] void cannot_write(const std::string& path, const char* why) {
  throw CommandError(kExitError, "cannot write '" + path + "': " + why);
}

}  // namespace

OutputFile::OutputFile(const std::string& path)
    : path_(path), part_(path + ".part." + std::to_string(getpid())) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) cannot_write(path, "it is a directory");
  file_.open(part_, std::ios::binary | std::ios::trunc);
  if (!file_.is_open()) cannot_write(path, std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (part_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

void OutputFile::commit(const std::string& content) {
  file_ << content;
  file_.close();
  if (!file_) cannot_write(path_, std::strerror(errno));
  std::error_code error;
  std::filesystem::rename(part_, path_, error);
  if (error) cannot_write(path_, error.message().c_str());
  part_.clear();
}

TempDirectory::TempDirectory() {
  std::error_code error;
  const std::filesystem::path root = std::filesystem::temp_directory_path(error);
  path_ = ((error ? std::filesystem::path("/tmp") : root) / "blend-eval-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) {
    throw CommandError(kExitError, "cannot make a directory for the store at '" + path_ +
                                       "': " + std::strerror(errno) + "; give --store");
  }
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace blend_cli
