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

// A file is taken as it is named; of a directory, every .txt and .md file below it, in the order of
// their paths, through links too, but not what is hidden. Throws CommandError (not found) for a
// path that is not there and when there is no text at all, and for a named file that is no text.
// What a directory has besides is left out, and a note for each kind of it says how many and why.
std::vector<Document> read_documents(const std::vector<std::string>& paths);

// A file's bytes as a document's text: UTF-8, or UTF-16 that begins with its mark. False: they are
// no such text, and `why` says what is wrong ("byte 7 ...").
bool decode_document(std::string_view bytes, std::string& text, std::string& why);

}  // namespace blend_cli
