#include "store/remote/client/cluster_slots.h"

#include "store/remote/client/number.h"

namespace blend {
namespace {

constexpr std::array<uint16_t, 256> make_table() {
  std::array<uint16_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
    table[i] = static_cast<uint16_t>(crc);
  }
  return table;
}
constexpr std::array<uint16_t, 256> kTable = make_table();

}  // namespace

uint32_t slot_of(std::string_view key) {
  if (const size_t open = key.find('{'); open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  uint16_t crc = 0;
  for (const char c : key) {
    crc = static_cast<uint16_t>((crc << 8) ^ kTable[((crc >> 8) ^ static_cast<uint8_t>(c)) & 0xff]);
  }
  return crc % kSlots;
}

std::optional<std::vector<SlotRange>> read_slots(const Reply& reply, const RemoteAddress& from) {
  using Type = Reply::Type;
  if (reply.type != Type::list) return std::nullopt;
  std::vector<SlotRange> ranges;
  int64_t n_slots = 0;
  for (const Reply& r : reply.list) {
    if (r.type != Type::list || r.list.size() < 3) return std::nullopt;
    const Reply& master = r.list[2];
    if (r.list[0].type != Type::integer || r.list[1].type != Type::integer ||
        master.type != Type::list || master.list.size() < 2 ||
        master.list[1].type != Type::integer) {
      return std::nullopt;
    }
    const int64_t first = r.list[0].integer;
    const int64_t last = r.list[1].integer;
    const int64_t port = master.list[1].integer;
    if (first < 0 || last < first || last >= kSlots || port < 1 || port > 65535)
      return std::nullopt;
    // No slot is served twice, so whoever follows this list does no more than that.
    n_slots += last - first + 1;
    const std::string& host = master.list[0].text;
    SlotRange range;
    range.first = static_cast<uint32_t>(first);
    range.last = static_cast<uint32_t>(last);
    range.master.host = host.empty() || host == "?" ? from.host : host;
    if (n_slots > kSlots || !is_host(range.master.host)) return std::nullopt;
    range.master.port = static_cast<uint16_t>(port);
    ranges.push_back(std::move(range));
  }
  if (ranges.empty()) return std::nullopt;
  return ranges;
}

std::optional<Redirect> read_redirect(const Reply& reply, const RemoteAddress& from) {
  Redirect out;
  out.ask = reply.is_error("ASK ");
  if (!out.ask && !reply.is_error("MOVED ")) return std::nullopt;
  const std::string_view text = reply.text;
  const size_t first = text.find(' ');
  const size_t second = text.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const std::string_view address = text.substr(second + 1);
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos ||
      !read_number(text.substr(first + 1, second - first - 1), &out.slot) || out.slot >= kSlots ||
      !read_number(address.substr(colon + 1), &out.to.port) || out.to.port == 0) {
    return std::nullopt;
  }
  const std::string_view host = address.substr(0, colon);
  out.to.host = host.empty() ? from.host : std::string(host);
  if (!is_host(out.to.host)) return std::nullopt;
  return out;
}

}  // namespace blend
