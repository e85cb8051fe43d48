#include "chat/search.h"

#include <algorithm>

namespace blend::chat {
namespace {

// For needles up to this length a naive search costs no more, even in the worst case.
constexpr size_t kShort = 8;

}  // namespace

Result<Search> Search::of(std::string_view needle, Meter& meter) {
  Search out(needle);
  if (needle.size() <= kShort) return out;
  if (needle.size() > UINT32_MAX) return Status::out_of_memory();
  BLEND_RETURN_IF_ERROR(meter.take(needle.size(), 8));
  // Knuth, Morris and Pratt.
  out.borders_.resize(needle.size());
  uint32_t border = 0;
  for (size_t i = 1; i < needle.size(); ++i) {
    while (border > 0 && needle[i] != needle[border]) border = out.borders_[border - 1];
    if (needle[i] == needle[border]) ++border;
    out.borders_[i] = border;
  }
  return out;
}

Result<size_t> Search::find(std::string_view text, size_t from, Meter& meter) const {
  constexpr auto kNone = std::string_view::npos;
  if (from > text.size() || text.size() - from < needle_.size()) return kNone;
  // Fuel is taken after each piece, for the bytes that were read. So a caller that goes on after an
  // occurrence pays for every byte once.
  constexpr size_t kPiece = 4096;
  size_t matched = 0;
  for (size_t begin = from; begin < text.size(); begin += kPiece) {
    const size_t end = std::min(text.size(), begin + kPiece);
    size_t found = kNone;
    if (borders_.empty()) {
      found = text.substr(0, std::min(text.size(), end + needle_.size() - 1)).find(needle_, begin);
    } else {
      for (size_t i = begin; i < end && found == kNone; ++i) {
        while (matched > 0 && text[i] != needle_[matched]) matched = borders_[matched - 1];
        if (text[i] == needle_[matched]) ++matched;
        if (matched == needle_.size()) found = i + 1 - matched;
      }
    }
    BLEND_RETURN_IF_ERROR(meter.take(1 + (found == kNone ? end : found + needle_.size()) - begin));
    if (found != kNone) return found;
  }
  return kNone;
}

}  // namespace blend::chat
