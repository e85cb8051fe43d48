// Documents: what is read from the files and directories on the command line.
#pragma once

#include <string>
#include <vector>

namespace blend_cli {

struct Document {
  std::string path;
  std::string text;  // line ends are "\n", no byte order mark
};

// A file is taken as it is named; of a directory, every .txt and .md file below it, in the order of
// their paths. Throws CommandError (not found) for a path that is not there and when there is no
// text at all.
std::vector<Document> read_documents(const std::vector<std::string>& paths);

}  // namespace blend_cli
