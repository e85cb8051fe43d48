// Documents: what is read from the files and directories on the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace blend_cli {

struct Document {
  std::string path;
  std::string text;  // UTF-8 without NUL; line ends are "\n", no byte order mark
};

// Reads a named file whatever its name; of a directory, every .txt and .md file below it, in the
// order of their paths, through links too, but not hidden ones. Throws CommandError (not found) for
// a path that is not there and when there is no text at all, and for a named file that is not text.
// Other files of a directory are left out; a note for each kind says how many and why.
std::vector<Document> read_documents(const std::vector<std::string>& paths);

// A file's bytes as a document's text: UTF-8, or UTF-16 that begins with its mark. False: they are
// not such text, and `why` says what is wrong ("byte 7 ...").
bool decode_document(std::string_view bytes, std::string& text, std::string& why);

}  // namespace blend_cli
