#include "dataset.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "command.h"
#include "documents.h"
#include "read_file.h"
#include "table.h"

namespace blend_cli {
namespace {

using nlohmann::json;

// Position of a record in the file, for messages.
struct Place {
  const std::string& name;
  size_t line;
};

[[noreturn]] void bad(const Place& place, const std::string& what) {
  throw CommandError(kExitDamaged, place.name + ":" + std::to_string(place.line) + ": " + what);
}

const json* member(const json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

std::string text_of(const json& value, const Place& place, const std::string& what) {
  if (!value.is_string()) {
    bad(place, what + " must be a string, not " + std::string(value.type_name()));
  }
  return value.get<std::string>();
}

std::vector<std::string> chunks_of(const json& record, const Place& place) {
  const json* chunks = member(record, "chunks");
  const bool titled = chunks == nullptr;
  if (titled) chunks = member(record, "ctxs");
  if (chunks == nullptr) bad(place, "neither \"chunks\" nor \"ctxs\" in the record");
  const std::string key = titled ? "ctxs" : "chunks";
  if (!chunks->is_array() || chunks->empty()) {
    bad(place, "\"" + key + "\" must be a list with one element at least");
  }
  std::vector<std::string> out;
  for (const json& chunk : *chunks) {
    const std::string which = "\"" + key + "\"[" + std::to_string(out.size()) + "]";
    std::string text;
    if (titled) {
      if (!chunk.is_object()) bad(place, which + " must be an object with \"text\"");
      if (const json* title = member(chunk, "title")) {
        text = text_of(*title, place, which + ".title") + '\n';
      }
      const json* body = member(chunk, "text");
      if (body == nullptr) bad(place, which + " has no \"text\"");
      text += text_of(*body, place, which + ".text");
      if (!text.empty() && text.back() != '\n') text += '\n';
    } else {
      text = text_of(chunk, place, which);
    }
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) bad(place, which + " is empty");
    out.push_back(std::move(text));
  }
  return out;
}

// Nested lists are flattened: the public MuSiQue files have them.
void append_answers(const json& value, const Place& place, bool outermost,
                    std::vector<std::string>& out) {
  if (value.is_array() && (outermost || !value.empty())) {
    for (const json& item : value) append_answers(item, place, false, out);
    return;
  }
  out.push_back(text_of(value, place, "an answer"));
}

std::string group_of(const json& record, const std::string& key, const Place& place) {
  const json* value = member(record, key.c_str());
  if (value == nullptr) bad(place, "no \"" + key + "\" in the record, which --group-by asks for");
  if (value->is_string()) return value->get<std::string>();
  if (value->is_number() || value->is_boolean()) return value->dump();
  bad(place, "\"" + key + "\" must be a string or a number, as --group-by asks for it");
}

Record record_of(const json& value, const Place& place, const std::string& group_key) {
  if (!value.is_object()) {
    bad(place, "a record must be an object, not " + std::string(value.type_name()));
  }
  Record record;
  record.line = place.line;
  record.chunks = chunks_of(value, place);
  const json* question = member(value, "question");
  if (question == nullptr) bad(place, "no \"question\" in the record");
  record.question = text_of(*question, place, "\"question\"");
  if (record.question.empty()) bad(place, "\"question\" is empty");
  const json* answers = member(value, "answers");
  if (answers == nullptr) answers = member(value, "answer");
  if (answers == nullptr) bad(place, "no \"answers\" in the record");
  append_answers(*answers, place, true, record.answers);
  if (record.answers.empty()) bad(place, "\"answers\" is an empty list");
  if (!group_key.empty()) record.group = group_of(value, group_key, place);
  return record;
}

size_t line_at(std::string_view text, size_t byte) {
  size_t line = 1;
  for (size_t i = 0; i < byte && i < text.size(); ++i) line += text[i] == '\n' ? 1 : 0;
  return line;
}

// Parses one JSON value that begins at line `line` of the file.
json parse_json(std::string_view text, const std::string& name, size_t line) {
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::parse_error& error) {
    const size_t byte = error.byte == 0 ? 0 : error.byte - 1;  // it counts from 1
    const size_t down = line_at(text, byte) - 1;
    const std::string_view before = text.substr(0, byte);
    const size_t newline = before.rfind('\n');
    const size_t column = byte - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    bad({name, line + down},
        byte >= text.size()
            ? "the JSON value is cut off"
            : format("not JSON at column %zu; each line must be one record, or the whole file one "
                     "JSON array",
                     column));
  } catch (const json::exception& error) {
    bad({name, line}, error.what());
  }
}

// The lines at which the elements of a well-formed array begin.
std::vector<size_t> element_lines(std::string_view text) {
  std::vector<size_t> lines;
  size_t line = 1;
  int depth = 0;
  bool in_string = false;
  bool expected = false;  // the next visible byte begins an element
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (expected && c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      if (c != ']') lines.push_back(line);
      expected = false;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') expected = depth++ == 0;
    if (c == ']' || c == '}') --depth;
    if (c == ',' && depth == 1) expected = true;
  }
  return lines;
}

}  // namespace

std::vector<Record> parse_dataset(std::string_view text, const std::string& name, size_t limit,
                                  const std::string& group_key) {
  constexpr std::string_view kBlank = " \t\r\n";
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  const size_t first = text.find_first_not_of(kBlank);
  std::vector<Record> records;
  const auto full = [&] { return limit != 0 && records.size() == limit; };
  if (first != std::string_view::npos && text[first] == '[') {
    const json array = parse_json(text, name, 1);
    const std::vector<size_t> lines = element_lines(text);
    for (size_t i = 0; i < array.size() && !full(); ++i) {
      records.push_back(record_of(array[i], {name, lines.at(i)}, group_key));
    }
  } else {
    size_t line = 0;
    for (size_t begin = 0; begin < text.size() && !full();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view row = text.substr(begin, end - begin);
      begin = end + 1;
      ++line;
      if (row.find_first_not_of(kBlank) == std::string_view::npos) continue;
      records.push_back(record_of(parse_json(row, name, line), {name, line}, group_key));
    }
  }
  if (records.empty()) {
    throw CommandError(kExitNotFound, "no record in '" + name +
                                          "': give JSON lines, or one JSON array, of {\"chunks\", "
                                          "\"question\", \"answers\"}");
  }
  return records;
}

std::vector<Record> read_dataset(const std::string& path, size_t limit,
                                 const std::string& group_key) {
  constexpr size_t kMostBytes = size_t{4} << 30;
  FileBytes file;
  interruptibly([&] { file = read_file(path, kMostBytes); });
  if (file.error != 0) {
    throw CommandError(file.error == ENOENT ? kExitNotFound : kExitError,
                       "cannot read the data '" + path + "': " + std::strerror(file.error));
  }
  const std::string mark = file.bytes.substr(0, 2);
  if (mark != "\xFF\xFE" && mark != "\xFE\xFF") {
    return parse_dataset(file.bytes, path, limit, group_key);
  }
  std::string text;
  std::string why;
  if (!decode_document(file.bytes, text, why)) bad({path, 1}, why);
  return parse_dataset(text, path, limit, group_key);
}

void shuffle_chunks(Record& record, uint64_t seed, size_t place) {
  // The engine's output is specified by the standard, a distribution's is not: so none is used.
  std::seed_seq mixed{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(place)};
  std::mt19937_64 engine(mixed);
  for (size_t i = record.chunks.size(); i > 1; --i) {
    std::swap(record.chunks[i - 1], record.chunks[engine() % i]);
  }
}

}  // namespace blend_cli
