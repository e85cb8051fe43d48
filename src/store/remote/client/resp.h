// The protocol of Redis and Valkey (RESP2, and what RESP3 adds), as far as a tier needs it: replies
// of bounded size, and bulk values that are read straight to where they belong. Its own code
// because a client library hands out every value as a string of its own: a copy of every byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "store/remote/client/engine.h"

namespace blend {

struct Reply {
  enum class Type { text, error, integer, bulk, null, list };
  Type type = Type::null;
  std::string text;         // of text, error and bulk
  int64_t integer = 0;      // of integer; of a bulk that was not taken: its length
  std::vector<Reply> list;  // of list; a map is a list of its keys and values

  bool is_error(std::string_view prefix) const {
    return type == Type::error && text.compare(0, prefix.size(), prefix) == 0;
  }
};

// What the server says, fit for a log: cut, and without what a terminal would obey.
std::string quoted(const Reply& reply);

// Where replies come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // At least one byte, at most `bytes`. IO: it has ended, or failed.
  virtual Result<size_t> read(std::byte* out, size_t bytes) = 0;
};

// Used by one thread. After an error but OK the source is out of step: nothing more can be read.
class RespReader {
 public:
  struct Limits {
    uint64_t most_bytes = 1u << 20;  // of all text of a reply, kept
    uint32_t most_items = 1u << 16;  // of all lists together
    uint32_t most_depth = 8;
  };
  static constexpr size_t kMostLine = 16u << 10;
  // Of a value that nobody asked for in this length: it is read over, to stay in step.
  static constexpr uint64_t kMostSkipped = 64ull << 20;

  explicit RespReader(ByteSource& source);

  // The next reply; pushed messages and attributes are left out. FORMAT: it is no RESP, or past the
  // limits of lists. CORRUPT: a value is too long.
  Result<Reply> read(const Limits& limits);
  // The next reply, where a bulk goes to `places` if it is exactly as long: then *taken. Any other
  // reply is given as read() does it, a bulk of another length without its text.
  Result<Reply> read_into(std::span<const Place> places, bool* taken, const Limits& limits);
  // Whether all that was read has been given.
  bool empty() const { return begin_ == end_; }

 private:
  struct Budget {
    uint64_t bytes;
    uint32_t items;
  };
  struct Head {
    char type = 0;
    std::string line;    // without type and end
    int64_t number = 0;  // of the types that have one
  };
  Result<Head> read_head();
  Result<Reply> read_value(Head head, uint32_t depth, Budget& budget);
  Result<Reply> read_list(uint64_t n, uint32_t depth, Budget& budget);
  Result<Reply> read_next(uint32_t depth, Budget& budget);
  // Reads over what is not for us; gives the head of what is.
  Result<Head> read_own_head(uint32_t depth, Budget& budget);
  Status fill();  // more bytes in buffer_
  Status take(std::byte* out, uint64_t bytes);
  Status skip(uint64_t bytes);
  Status end_of_line();

  ByteSource& source_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

// A command of `n` parts: its head, for a writer that sends values as they lie.
void append_command_head(std::string& out, size_t n_parts);
void append_bulk_head(std::string& out, uint64_t bytes);
void append_bulk(std::string& out, std::string_view part);

}  // namespace blend
