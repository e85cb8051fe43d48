// Dataset: questions over chunks, with the answers that count as right.
//
// Two shapes of a record, as JSON lines or as one JSON array; other members are ignored:
//   {"chunks": ["...", ...], "question": "...", "answers": ["...", ...]}
//   {"ctxs": [{"title": "...", "text": "..."}, ...], "question": "...", "answers": [...]}
// The second is that of the public MuSiQue and 2WikiMQA files: a chunk is title, newline, text,
// newline. `answers` may be one string; `answer` stands for `answers`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace blend_cli {

struct Record {
  size_t line = 0;  // where it begins in the file, from 1
  std::vector<std::string> chunks;
  std::string question;
  std::vector<std::string> answers;
  std::string group;  // value of the key that groups are made by
};

// The first `limit` records (0: all). With a `group_key` every record must have a string or number
// under it. Throws CommandError that names the file and the line: not found, damaged (not JSON, or
// not of these shapes), or no record at all.
std::vector<Record> read_dataset(const std::string& path, size_t limit,
                                 const std::string& group_key = "");
// The same from memory; `name` stands for the file in messages.
std::vector<Record> parse_dataset(std::string_view text, const std::string& name, size_t limit,
                                  const std::string& group_key = "");

// Shuffles the chunks of a record: the same seed and place give the same order on every platform.
void shuffle_chunks(Record& record, uint64_t seed, size_t place);

}  // namespace blend_cli
