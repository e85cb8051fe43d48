#include "model/tokenizer/json_steps.h"

#include <algorithm>

#include "model/tokenizer/pre_patterns.h"
#include "model/utf8.h"

namespace blend {
namespace {

Status unsupported(const JsonView& where, const char* what, const std::string& type) {
  return make_error(BLEND_E_UNSUPPORTED, "%.200s: the %s '%.60s' is not supported",
                    where.path().c_str(), what, type.c_str());
}

// A step, or the steps of a "Sequence" (of sequences: the tree's depth is bounded), one after the
// other.
Status flatten(const JsonView& step, const char* list, std::vector<JsonView>& out) {
  BLEND_ASSIGN(const JsonView type, step.need("type"));
  BLEND_ASSIGN(const std::string name, type.string());
  if (name != "Sequence") {
    out.push_back(step);
    return Status::ok();
  }
  BLEND_ASSIGN(const JsonView steps, step.need(list));
  BLEND_ASSIGN(const Json::Array* const entries, steps.array());
  for (size_t i = 0; i < entries->size(); ++i) {
    BLEND_RETURN_IF_ERROR(flatten(steps.element(i), list, out));
  }
  return Status::ok();
}

Result<std::vector<JsonView>> steps_of(const JsonView& root, const char* member, const char* list) {
  std::vector<JsonView> steps;
  const std::optional<JsonView> first = root.get(member);
  if (first) BLEND_RETURN_IF_ERROR(flatten(*first, list, steps));
  return steps;
}

Result<std::string> type_of(const JsonView& step) {
  BLEND_ASSIGN(const JsonView type, step.need("type"));
  return type.string();
}

// {"String": "..."} or {"Regex": "..."}.
Result<Regex> read_pattern(const JsonView& step) {
  BLEND_ASSIGN(const JsonView pattern, step.need("pattern"));
  const std::optional<JsonView> regex = pattern.get("Regex");
  if (!regex) {
    BLEND_ASSIGN(const JsonView literal, pattern.need("String"));
    BLEND_ASSIGN(const std::string text, literal.string());
    if (text.empty()) return literal.error(BLEND_E_FORMAT, "nothing to look for");
    return Regex::literal(text);
  }
  BLEND_ASSIGN(const std::string text, regex->string());
  Result<Regex> compiled = Regex::compile(text);
  if (!compiled.is_ok()) return compiled.status().with_context(regex->path());
  return compiled;
}

Status read_normalizers(const JsonView& root, std::vector<NormalizeStep>& out) {
  BLEND_ASSIGN(const std::vector<JsonView> steps, steps_of(root, "normalizer", "normalizers"));
  for (const JsonView& step : steps) {
    BLEND_ASSIGN(const std::string type, type_of(step));
    NormalizeStep s;
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      s.form = type == "NFC"    ? NormalForm::nfc
               : type == "NFD"  ? NormalForm::nfd
               : type == "NFKC" ? NormalForm::nfkc
                                : NormalForm::nfkd;
    } else if (type == "Replace") {
      s.kind = NormalizeStep::Kind::replace;
      BLEND_ASSIGN(s.what, read_pattern(step));
      BLEND_ASSIGN(s.with, step.string_or("content", ""));
    } else if (type == "Prepend") {
      s.kind = NormalizeStep::Kind::prepend;
      BLEND_ASSIGN(s.with, step.string_or("prepend", ""));
    } else {
      return unsupported(step, "normalizer", type);
    }
    out.push_back(std::move(s));
  }
  return Status::ok();
}

Result<SplitBehavior> read_behavior(const JsonView& step, const char* otherwise) {
  BLEND_ASSIGN(const std::string name, step.string_or("behavior", otherwise));
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  return unsupported(step, "split behavior", name);
}

// Metaspace, of pre-tokenizers and decoders: the character and where it is put in front.
Status read_metaspace(const JsonView& step, std::string& replacement, PrependScheme& prepend) {
  BLEND_ASSIGN(replacement, step.string_or("replacement", "\xe2\x96\x81"));
  if (replacement.empty() || replacement == " " || utf8_length(replacement) != replacement.size()) {
    return step.error(BLEND_E_FORMAT, "'replacement' must be one character, and no space");
  }
  // Files from before 2024 say add_prefix_space.
  BLEND_ASSIGN(const bool add, step.boolean_or("add_prefix_space", true));
  BLEND_ASSIGN(const std::string scheme,
               step.string_or("prepend_scheme", add ? "always" : "never"));
  if (scheme == "always") {
    prepend = PrependScheme::always;
  } else if (scheme == "first") {
    prepend = PrependScheme::first;
  } else if (scheme == "never") {
    prepend = PrependScheme::never;
  } else {
    return unsupported(step, "prepend_scheme", scheme);
  }
  return Status::ok();
}

Result<SplitStep> read_split(const JsonView& step, const std::string& type) {
  SplitStep s;
  if (type == "Split") {
    BLEND_ASSIGN(s.at, read_pattern(step));
    BLEND_ASSIGN(s.behavior, read_behavior(step, "Isolated"));
    BLEND_ASSIGN(s.invert, step.boolean_or("invert", false));
  } else if (type == "Digits") {
    BLEND_ASSIGN(s.at, Regex::compile(R"(\p{N})"));
    BLEND_ASSIGN(const bool each, step.boolean_or("individual_digits", false));
    s.behavior = each ? SplitBehavior::isolated : SplitBehavior::contiguous;
  } else if (type == "Punctuation") {
    BLEND_ASSIGN(s.at, Regex::compile(R"([!-/:-@\[-`{-~\p{P}])"));
    BLEND_ASSIGN(s.behavior, read_behavior(step, "Isolated"));
  } else if (type == "ByteLevel") {
    BLEND_ASSIGN(const bool cut, step.boolean_or("use_regex", true));
    if (cut) {
      BLEND_ASSIGN(s.at, Regex::compile(kGpt2Pattern));
    }
    BLEND_ASSIGN(s.prefix_space, step.boolean_or("add_prefix_space", true));
  } else if (type == "Metaspace") {
    s.kind = SplitStep::Kind::metaspace;
    BLEND_RETURN_IF_ERROR(read_metaspace(step, s.replacement, s.prepend));
    BLEND_ASSIGN(s.cut, step.boolean_or("split", true));
  } else {
    return unsupported(step, "pre-tokenizer", type);
  }
  return s;
}

// A byte-level step turns the text into bytes' characters, so that none can follow it.
Status read_pre_tokenizers(const JsonView& root, BpeTokenizerSpec& spec) {
  spec.bpe.bytes = false;
  BLEND_ASSIGN(const std::vector<JsonView> steps, steps_of(root, "pre_tokenizer", "pretokenizers"));
  for (const JsonView& step : steps) {
    if (spec.bpe.bytes) {
      return step.error(BLEND_E_UNSUPPORTED, "a pre-tokenizer after 'ByteLevel' is not supported");
    }
    BLEND_ASSIGN(const std::string type, type_of(step));
    BLEND_ASSIGN(SplitStep s, read_split(step, type));
    spec.bpe.bytes = type == "ByteLevel";
    spec.split.push_back(std::move(s));
  }
  return Status::ok();
}

Status read_strip(const JsonView& step, TextDecoder& decoder) {
  BLEND_ASSIGN(decoder.strip, step.string_or("content", " "));
  BLEND_ASSIGN(const JsonView start, step.need("start"));
  BLEND_ASSIGN(const int64_t n, start.integer(0, 1 << 10));
  BLEND_ASSIGN(const JsonView stop, step.need("stop"));
  BLEND_ASSIGN(const int64_t behind, stop.integer(0, 1 << 10));
  if (behind != 0 || decoder.strip.empty()) {
    return step.error(BLEND_E_UNSUPPORTED, "stripping a text's end is not supported");
  }
  decoder.strip_count = static_cast<uint32_t>(n);
  return Status::ok();
}

Status read_decoders(const JsonView& root, TextDecoder& decoder) {
  BLEND_ASSIGN(const std::vector<JsonView> steps, steps_of(root, "decoder", "decoders"));
  bool fused = false;  // from here on steps see the whole text
  for (const JsonView& step : steps) {
    BLEND_ASSIGN(const std::string type, type_of(step));
    if (type == "Strip" && fused) {
      BLEND_RETURN_IF_ERROR(read_strip(step, decoder));
    } else if (type == "Fuse") {
      fused = true;
    } else if (fused) {
      return unsupported(step, "decoder after 'Fuse'", type);
    } else if (type == "ByteLevel") {
      decoder.byte_level = true;
    } else if (type == "ByteFallback") {
      decoder.byte_fallback = true;
    } else if (type == "Replace") {
      BLEND_ASSIGN(const JsonView pattern, step.need("pattern"));
      BLEND_ASSIGN(const JsonView text, pattern.need("String"));
      std::pair<std::string, std::string> replace;
      BLEND_ASSIGN(replace.first, text.string());
      BLEND_ASSIGN(replace.second, step.string_or("content", ""));
      if (replace.first.empty()) return text.error(BLEND_E_FORMAT, "nothing to look for");
      decoder.replace.push_back(std::move(replace));
    } else if (type == "Metaspace") {
      std::string replacement;
      PrependScheme prepend = PrependScheme::never;
      BLEND_RETURN_IF_ERROR(read_metaspace(step, replacement, prepend));
      decoder.replace.emplace_back(replacement, std::string(1, ' '));
      if (prepend != PrependScheme::never) {
        decoder.strip.assign(1, ' ');
        decoder.strip_count = 1;
      }
    } else {
      return unsupported(step, "decoder", type);
    }
  }
  return Status::ok();
}

}  // namespace

Status read_text_steps(const JsonView& root, BpeTokenizerSpec& spec) {
  BLEND_RETURN_IF_ERROR(read_normalizers(root, spec.normalize));
  BLEND_RETURN_IF_ERROR(read_pre_tokenizers(root, spec));
  BLEND_RETURN_IF_ERROR(read_decoders(root, spec.decoder));
  const TextDecoder& d = spec.decoder;
  if (d.byte_level != spec.bpe.bytes || (d.byte_level && (d.byte_fallback || !d.replace.empty()))) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "decoder: 'ByteLevel' must be the decoder exactly where it is the last "
                      "pre-tokenizer");
  }
  if (!d.byte_level && d.replace.empty() && !d.byte_fallback) {
    return make_error(BLEND_E_UNSUPPORTED, "decoder: none that says how tokens become text");
  }
  return Status::ok();
}

Status read_post_processor(const JsonView& root, BpeTokenizerSpec& spec) {
  BLEND_ASSIGN(const std::vector<JsonView> steps, steps_of(root, "post_processor", "processors"));
  for (const JsonView& step : steps) {
    BLEND_ASSIGN(const std::string type, type_of(step));
    if (type == "ByteLevel") continue;  // concerns offsets
    if (type != "TemplateProcessing") return unsupported(step, "post-processor", type);
    BLEND_ASSIGN(const JsonView single, step.need("single"));
    BLEND_ASSIGN(const Json::Array* const pieces, single.array());
    bool after_text = false;
    for (size_t i = 0; i < pieces->size(); ++i) {
      const JsonView piece = single.element(i);
      if (piece.get("Sequence")) {
        after_text = true;
        continue;
      }
      BLEND_ASSIGN(const JsonView token, piece.need("SpecialToken"));
      BLEND_ASSIGN(const JsonView name, token.need("id"));
      BLEND_ASSIGN(const std::string text, name.string());
      const auto at = std::find(spec.tokens.begin(), spec.tokens.end(), text);
      if (at == spec.tokens.end()) {
        return name.error(BLEND_E_FORMAT, "it is not a token of the vocabulary");
      }
      const auto id = static_cast<int32_t>(at - spec.tokens.begin());
      if (after_text) {
        spec.closing.push_back(id);
        continue;
      }
      if (spec.add_bos) {
        return single.error(BLEND_E_UNSUPPORTED, "more than one token in front of a text");
      }
      spec.bos = id;
      spec.add_bos = true;
    }
  }
  return Status::ok();
}

}  // namespace blend
