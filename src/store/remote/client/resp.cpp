#include "store/remote/client/resp.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace blend {
namespace {

constexpr size_t kBufferBytes = 16u << 10;

// Nobody's fault but the value's: the connection is of no more use, the server is well.
Status too_long() { return {BLEND_E_CORRUPT, "a value is longer than it may be"}; }

Status no_resp(const char* why) {
  return make_error(BLEND_E_FORMAT, "the server does not speak RESP: %s", why);
}

}  // namespace

std::string quoted(const Reply& reply) {
  std::string text = reply.text.substr(0, 200);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

RespReader::RespReader(ByteSource& source)
    : source_(source), buffer_(std::make_unique<std::byte[]>(kBufferBytes)) {}

Status RespReader::fill() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == kBufferBytes) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  BLEND_ASSIGN(const size_t n, source_.read(buffer_.get() + end_, kBufferBytes - end_));
  end_ += n;
  return Status::ok();
}

Status RespReader::take(std::byte* out, uint64_t bytes) {
  const auto buffered = static_cast<size_t>(std::min<uint64_t>(bytes, end_ - begin_));
  std::memcpy(out, buffer_.get() + begin_, buffered);
  begin_ += buffered;
  for (uint64_t done = buffered; done < bytes;) {
    BLEND_ASSIGN(const size_t n, source_.read(out + done, static_cast<size_t>(bytes - done)));
    done += n;
  }
  return Status::ok();
}

Status RespReader::skip(uint64_t bytes) {
  while (bytes > 0) {
    if (begin_ == end_) BLEND_RETURN_IF_ERROR(fill());
    const uint64_t n = std::min<uint64_t>(bytes, end_ - begin_);
    begin_ += static_cast<size_t>(n);
    bytes -= n;
  }
  return Status::ok();
}

Status RespReader::end_of_line() {
  std::byte end[2];
  BLEND_RETURN_IF_ERROR(take(end, sizeof end));
  if (end[0] != std::byte{'\r'} || end[1] != std::byte{'\n'}) {
    return no_resp("a value does not end where it should");
  }
  return Status::ok();
}

Result<RespReader::Head> RespReader::read_head() {
  Head head;
  std::string line;
  for (;;) {
    if (begin_ == end_) BLEND_RETURN_IF_ERROR(fill());
    const auto* const from = reinterpret_cast<const char*>(buffer_.get() + begin_);
    const auto* const feed = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    const size_t n = feed == nullptr ? end_ - begin_ : static_cast<size_t>(feed - from) + 1;
    if (line.size() + n > kMostLine) return no_resp("a line is too long");
    line.append(from, n);
    begin_ += n;
    if (feed != nullptr) break;
  }
  if (line.size() < 3 || line[line.size() - 2] != '\r') return no_resp("a line has no end");
  line.resize(line.size() - 2);
  head.type = line[0];
  line.erase(0, 1);
  switch (head.type) {
    case '$':
    case '*':
    case '=':
    case '!':
    case '%':
    case '~':
    case '>':
    case '|':
    case ':': {
      const char* const end = line.data() + line.size();
      const auto [stop, error] = std::from_chars(line.data(), end, head.number);
      if (error != std::errc() || stop != end) return no_resp("a length is no number");
      if (head.type != ':' && head.number < -1) return no_resp("a length is negative");
      break;
    }
    case '+':
    case '-':
    case '_':
    case '#':
    case ',':
    case '(':
      break;
    default:
      return no_resp("a reply is of no known type");
  }
  head.line = std::move(line);
  return head;
}

Result<Reply> RespReader::read_list(uint64_t n, uint32_t depth, Budget& budget) {
  if (depth == 0) return no_resp("lists lie too deep in each other");
  if (n > budget.items) return no_resp("a list is too long");
  budget.items -= static_cast<uint32_t>(n);
  Reply reply;
  reply.type = Reply::Type::list;
  for (uint64_t i = 0; i < n; ++i) {
    BLEND_ASSIGN(Reply item, read_next(depth - 1, budget));
    reply.list.push_back(std::move(item));
  }
  return reply;
}

Result<RespReader::Head> RespReader::read_own_head(uint32_t depth, Budget& budget) {
  for (;;) {
    BLEND_ASSIGN(Head head, read_head());
    if (head.type != '>' && head.type != '|') return head;
    if (head.number < 0) return no_resp("a length is negative");
    // Also where it is empty, or an endless row of them would never end.
    if (budget.items == 0) return no_resp("too much is pushed");
    --budget.items;
    const uint64_t n = static_cast<uint64_t>(head.number) * (head.type == '|' ? 2 : 1);
    BLEND_ASSIGN(const Reply passed, read_list(n, depth, budget));
    (void)passed;
  }
}

Result<Reply> RespReader::read_next(uint32_t depth, Budget& budget) {
  BLEND_ASSIGN(Head head, read_own_head(depth, budget));
  return read_value(std::move(head), depth, budget);
}

Result<Reply> RespReader::read_value(Head head, uint32_t depth, Budget& budget) {
  Reply reply;
  switch (head.type) {
    case ':':
      reply.type = Reply::Type::integer;
      reply.integer = head.number;
      return reply;
    case '_':
      return reply;
    case '#':
      reply.type = Reply::Type::integer;
      reply.integer = head.line == "t" ? 1 : 0;
      return reply;
    case '$':
    case '=':
    case '!': {
      if (head.number < 0) return reply;
      const auto bytes = static_cast<uint64_t>(head.number);
      if (bytes > budget.bytes) return too_long();
      budget.bytes -= bytes;
      reply.type = head.type == '!' ? Reply::Type::error : Reply::Type::bulk;
      reply.integer = head.number;
      // In steps: a length costs memory only as its bytes come.
      while (reply.text.size() < bytes) {
        const size_t at = reply.text.size();
        const auto n = static_cast<size_t>(std::min<uint64_t>(bytes - at, 1u << 20));
        reply.text.resize(at + n);
        BLEND_RETURN_IF_ERROR(take(reinterpret_cast<std::byte*>(reply.text.data()) + at, n));
      }
      BLEND_RETURN_IF_ERROR(end_of_line());
      return reply;
    }
    case '*':
    case '~':
    case '%':
      if (head.number < 0) return reply;
      return read_list(static_cast<uint64_t>(head.number) * (head.type == '%' ? 2 : 1), depth,
                       budget);
    default:
      if (head.line.size() > budget.bytes) return no_resp("a line is longer than it may be");
      budget.bytes -= head.line.size();
      reply.type = head.type == '-' ? Reply::Type::error : Reply::Type::text;
      reply.text = std::move(head.line);
      return reply;
  }
}

Result<Reply> RespReader::read(const Limits& limits) {
  Budget budget{limits.most_bytes, limits.most_items};
  BLEND_ASSIGN(Reply reply, read_next(limits.most_depth, budget));
  return reply;
}

Result<Reply> RespReader::read_into(std::span<const Place> places, bool* taken,
                                    const Limits& limits) {
  *taken = false;
  Budget budget{limits.most_bytes, limits.most_items};
  BLEND_ASSIGN(Head head, read_own_head(limits.most_depth, budget));
  Reply reply;
  if (head.type == '$' && head.number >= 0) {
    uint64_t wanted = 0;
    for (const Place& place : places) wanted += place.bytes;
    const auto bytes = static_cast<uint64_t>(head.number);
    *taken = bytes == wanted;
    if (*taken) {
      for (const Place& place : places) BLEND_RETURN_IF_ERROR(take(place.at, place.bytes));
    } else {
      if (bytes > kMostSkipped) return too_long();
      BLEND_RETURN_IF_ERROR(skip(bytes));
    }
    BLEND_RETURN_IF_ERROR(end_of_line());
    reply.type = Reply::Type::bulk;
    reply.integer = head.number;
  } else {
    BLEND_ASSIGN(reply, read_value(std::move(head), limits.most_depth, budget));
  }
  return reply;
}

void append_command_head(std::string& out, size_t n_parts) {
  out.append("*").append(std::to_string(n_parts)).append("\r\n");
}

void append_bulk_head(std::string& out, uint64_t bytes) {
  out.append("$").append(std::to_string(bytes)).append("\r\n");
}

void append_bulk(std::string& out, std::string_view part) {
  append_bulk_head(out, part.size());
  out.append(part).append("\r\n");
}

}  // namespace blend
