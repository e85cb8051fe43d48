#include "model/tokenizer/text_steps.h"

#include <algorithm>

namespace blend {
namespace {

struct Part {
  TextRange range;
  bool matched;
};

// `text` cut at the matches: ranges that cover it, and whether each is a match.
Status cut(const Regex& regex, std::string_view text, std::vector<TextRange>& matches,
           std::vector<Part>& parts) {
  parts.clear();
  BLEND_RETURN_IF_ERROR(regex.find_all(text, matches));
  size_t at = 0;
  for (const TextRange& m : matches) {
    if (m.begin > at) parts.push_back({{at, m.begin}, false});
    if (m.end > m.begin) parts.push_back({m, true});
    at = m.end;
  }
  if (at < text.size()) parts.push_back({{at, text.size()}, false});
  return Status::ok();
}

// Joins parts by the behavior. Parts are adjacent, so that ends are joined.
void join(SplitBehavior behavior, const std::vector<Part>& parts, std::vector<TextRange>& out) {
  const size_t first = out.size();
  switch (behavior) {
    case SplitBehavior::removed:
      for (const Part& p : parts) {
        if (!p.matched) out.push_back(p.range);
      }
      break;
    case SplitBehavior::isolated:
      for (const Part& p : parts) out.push_back(p.range);
      break;
    case SplitBehavior::contiguous:
      for (size_t i = 0; i < parts.size(); ++i) {
        if (i > 0 && parts[i].matched == parts[i - 1].matched) {
          out.back().end = parts[i].range.end;
        } else {
          out.push_back(parts[i].range);
        }
      }
      break;
    case SplitBehavior::merged_with_previous:
      for (size_t i = 0; i < parts.size(); ++i) {
        if (i > 0 && parts[i].matched && !parts[i - 1].matched) {
          out.back().end = parts[i].range.end;
        } else {
          out.push_back(parts[i].range);
        }
      }
      break;
    case SplitBehavior::merged_with_next:
      for (size_t i = parts.size(); i-- > 0;) {
        if (i + 1 < parts.size() && parts[i].matched && !parts[i + 1].matched) {
          out.back().begin = parts[i].range.begin;
        } else {
          out.push_back(parts[i].range);
        }
      }
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
      break;
  }
}

Status run_split(const SplitStep& step, Pieces& pieces) {
  if (!step.at) return Status::ok();
  std::vector<TextRange> out;
  std::vector<TextRange> matches;
  std::vector<Part> parts;
  for (const TextRange& r : pieces.ranges) {
    const std::string_view piece = std::string_view(pieces.text).substr(r.begin, r.end - r.begin);
    BLEND_RETURN_IF_ERROR(cut(*step.at, piece, matches, parts));
    for (Part& p : parts) {
      p.matched = p.matched != step.invert;
      p.range.begin += r.begin;
      p.range.end += r.begin;
    }
    join(step.behavior, parts, out);
  }
  pieces.ranges.swap(out);
  return Status::ok();
}

// Rewrites every piece: edit(piece, index, text) appends it.
template <typename Edit>
void rewrite(Pieces& pieces, const Edit& edit) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    TextRange& r = pieces.ranges[i];
    const size_t begin = text.size();
    edit(std::string_view(pieces.text).substr(r.begin, r.end - r.begin), i, text);
    r = {begin, text.size()};
  }
  pieces.text.swap(text);
}

void run_metaspace(const SplitStep& step, bool begins, bool prefix, Pieces& pieces) {
  rewrite(pieces, [&](std::string_view piece, size_t index, std::string& text) {
    const bool wanted = step.prepend == PrependScheme::always ||
                        (step.prepend == PrependScheme::first && begins && index == 0);
    const bool has = piece.starts_with(' ') || piece.starts_with(step.replacement);
    if (prefix && wanted && !has) text += step.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        text += step.replacement;
      } else {
        text.push_back(c);
      }
    }
  });
  if (!step.cut) return;
  std::vector<TextRange> out;
  for (const TextRange& r : pieces.ranges) {
    size_t begin = r.begin;
    for (size_t at; (at = pieces.text.find(step.replacement, begin + 1)) < r.end; begin = at) {
      out.push_back({begin, at});
    }
    out.push_back({begin, r.end});
  }
  pieces.ranges.swap(out);
}

}  // namespace

Result<std::string> normalize(const std::vector<NormalizeStep>& steps, std::string_view text,
                              bool begins) {
  std::string current(text);
  for (const NormalizeStep& step : steps) {
    switch (step.kind) {
      case NormalizeStep::Kind::unicode: {
        BLEND_ASSIGN(current, normalize_unicode(current, step.form));
        break;
      }
      case NormalizeStep::Kind::replace: {
        std::vector<TextRange> matches;
        BLEND_RETURN_IF_ERROR(step.what->find_all(current, matches));
        std::string replaced;
        replaced.reserve(current.size() + matches.size() * step.with.size());
        size_t at = 0;
        for (const TextRange& m : matches) {
          replaced.append(current, at, m.begin - at).append(step.with);
          at = m.end;
        }
        replaced.append(current, at);
        current.swap(replaced);
        break;
      }
      case NormalizeStep::Kind::prepend:
        if (begins && !current.empty()) current.insert(0, step.with);
        break;
    }
  }
  return current;
}

Status split(const std::vector<SplitStep>& steps, bool begins, bool prefix, Pieces& pieces) {
  for (const SplitStep& step : steps) {
    if (step.kind == SplitStep::Kind::metaspace) {
      run_metaspace(step, begins, prefix, pieces);
      continue;
    }
    if (step.prefix_space && prefix) {
      rewrite(pieces, [](std::string_view piece, size_t, std::string& text) {
        if (!piece.starts_with(' ')) text.push_back(' ');
        text += piece;
      });
    }
    BLEND_RETURN_IF_ERROR(run_split(step, pieces));
  }
  return Status::ok();
}

void hash_steps(const std::vector<NormalizeStep>& normalize, const std::vector<SplitStep>& split,
                Sha256Hasher& hasher) {
  hasher.field(static_cast<uint64_t>(normalize.size()));
  for (const NormalizeStep& s : normalize) {
    hasher.field(static_cast<uint64_t>(s.kind)).field(static_cast<uint64_t>(s.form));
    hasher.field(s.what ? s.what->pattern() : "").field(s.with);
  }
  hasher.field(static_cast<uint64_t>(split.size()));
  for (const SplitStep& s : split) {
    hasher.field(static_cast<uint64_t>(s.kind)).field(s.at ? s.at->pattern() : "");
    hasher.field(static_cast<uint64_t>(s.behavior)).field(s.replacement);
    hasher.field(uint64_t{s.invert} | uint64_t{s.prefix_space} << 1 | uint64_t{s.cut} << 2 |
                 static_cast<uint64_t>(s.prepend) << 3);
  }
}

}  // namespace blend
