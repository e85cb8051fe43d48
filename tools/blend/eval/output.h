// Where an evaluation writes: result files that appear whole or not at all, and a directory for a
// store that nobody asked to keep.
#pragma once

#include <fstream>
#include <string>

namespace blend_cli {

// A file written beside its final name and renamed to it by commit(); without commit() nothing is
// left and an older file stays. Opened at once, so that a run of an hour does not end at a missing
// directory. Used by one thread.
class OutputFile {
 public:
  // Throws CommandError naming the file.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void commit(const std::string& content);

 private:
  std::string path_;
  std::string part_;
  std::ofstream file_;
};

// A new directory below the system's directory for temporary files, removed on destruction.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace blend_cli
