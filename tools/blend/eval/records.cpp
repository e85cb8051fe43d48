#include "eval/records.h"

#include <algorithm>
#include <utility>

#include "blend/blend.hpp"
#include "command.h"

namespace blend_cli {
namespace {

using Is = RecordKind::Is;

constexpr std::string_view kText = "text:";
constexpr size_t kMostPassages = BLEND_MOST_CONTEXTS;

constexpr std::pair<std::string_view, Is> kWords[] = {
    {"alone", Is::alone}, {"head", Is::head}, {"predecessor", Is::predecessor}, {"bos", Is::bos}};

constexpr std::pair<std::string_view, Is> kWithPassages[] = {
    {"similar:", Is::similar}, {"joined:", Is::joined}, {"preceding:", Is::preceding}};

// M of "similar:M" and its like; 0 if it is not of that form.
size_t passages_of(std::string_view item) {
  const size_t colon = item.find(':');
  if (colon == item.npos) return 0;
  const std::string_view word = item.substr(0, colon + 1);
  if (std::none_of(std::begin(kWithPassages), std::end(kWithPassages),
                   [&](const auto& k) { return k.first == word; }))
    return 0;
  const std::string_view digits = item.substr(colon + 1);
  if (digits.empty() || digits.size() > 2) return 0;
  size_t n = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return 0;
    n = 10 * n + static_cast<size_t>(c - '0');
  }
  return n <= kMostPassages ? n : 0;
}

bool is_text(std::string_view item) { return item.substr(0, kText.size()) == kText; }

// Whether an item ends at the next comma.
bool is_word(std::string_view item) {
  return passages_of(item) > 0 || std::any_of(std::begin(kWords), std::end(kWords),
                                              [&](const auto& w) { return w.first == item; });
}

bool begins_item(std::string_view list) {
  return is_text(list) || is_word(list.substr(0, list.find(',')));
}

}  // namespace

RecordKind parse_record_kind(const std::string& name) {
  RecordKind kind;
  kind.name = name;
  kind.n_passages = passages_of(name);
  if (kind.n_passages > 0) {
    for (const auto& [word, is] : kWithPassages) {
      if (name.compare(0, word.size(), word) == 0) kind.is = is;
    }
    return kind;
  }
  if (is_text(name)) {
    kind.is = Is::text;
    return kind;
  }
  if (name == kProfileRecords) {
    kind.is = Is::profile;
    return kind;
  }
  for (const auto& [word, is] : kWords) {
    if (name != word) continue;
    kind.is = is;
    return kind;
  }
  throw CommandError(kExitUsage,
                     "--records: '" + name +
                         "' must be alone, head, predecessor, similar:M, joined:M, preceding:M "
                         "(M from 1 to " +
                         std::to_string(kMostPassages) + "), bos or text:...");
}

std::vector<std::string> split_record_kinds(std::string_view list) {
  std::vector<std::string> items;
  while (true) {
    size_t end = std::min(list.find(','), list.size());
    while (is_text(list) && end < list.size() && !begins_item(list.substr(end + 1))) {
      end = std::min(list.find(',', end + 1), list.size());
    }
    items.emplace_back(list.substr(0, end));
    // A profile's is added by --profile.
    parse_record_kind(items.back() == kProfileRecords ? "" : items.back());
    if (end == list.size()) return items;
    list.remove_prefix(end + 1);
  }
}

}  // namespace blend_cli
