#include "grammar/grammar.h"

#include <limits>
#include <new>

#include "grammar/budget.h"
#include "grammar/json_schema.h"
#include "grammar/text_rules.h"
#include "grammar/xgrammar/glue.h"

namespace blend {

using grammar::Budget;
using grammar::TextRules;

namespace {

// A text's states grow with it, of an ambiguous grammar with the square of its length.
constexpr size_t kRunBytes = size_t{256} << 20;
constexpr uint64_t kStepNs = 1'000'000'000u;

constexpr std::string_view kAnyObject = R"({"type":"object"})";

// Calls `work` within the budget; its status, or what ended it.
template <typename Work>
Status within(Budget& budget, uint64_t cpu_ns, const CancelToken* cancel, const Work& work) {
  try {
    const Budget::Use use(budget, cpu_ns, cancel);
    return work();
  } catch (const std::bad_alloc&) {
    return budget.why();
  }
}

// `wrong`: what xgrammar says of it.
Status invalid(GrammarKind kind, const std::string& wrong) {
  const char* const name = kind == GrammarKind::regex  ? "regular expression"
                           : kind == GrammarKind::ebnf ? "EBNF grammar"
                                                       : "JSON schema";
  return make_error(BLEND_E_INVALID_ARGUMENT, "the %s cannot be used: %.400s", name, wrong.c_str());
}

xgrammar_glue::Language language_of(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::regex:
      return xgrammar_glue::Language::regex;
    case GrammarKind::ebnf:
      return xgrammar_glue::Language::ebnf;
    case GrammarKind::json:
    case GrammarKind::json_schema:
      break;
  }
  return xgrammar_glue::Language::json_schema;
}

}  // namespace

struct Grammar::Compiled {
  xgrammar_glue::Compiled* glue = nullptr;
  ~Compiled() { xgrammar_glue::destroy(glue); }
};

struct GrammarRun::State {
  State(std::shared_ptr<const Grammar> of, TextRules::Kind kind)
      : grammar(std::move(of)), rules(kind), mask(grammar->vocabulary().words()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { xgrammar_glue::destroy(matcher); }

  // Takes the tokens out of `mask` that must not follow the text's last bytes.
  void keep_rules();

  std::shared_ptr<const Grammar> grammar;
  TextRules rules;
  TextRules::State at = TextRules::kStart;
  Budget budget{kRunBytes};
  xgrammar_glue::Matcher* matcher = nullptr;
  std::vector<int32_t> mask;  // [words]
};

void GrammarRun::State::keep_rules() {
  const GrammarVocabulary& vocabulary = grammar->vocabulary();
  const auto allowed = grammar->json_ ? vocabulary.in_json() : vocabulary.in_text();
  // xgrammar may set bits after the last token.
  if (const size_t over = vocabulary.n_tokens() % 32; over != 0) {
    mask.back() &= static_cast<int32_t>((uint32_t{1} << over) - 1);
  }
  for (size_t w = 0; w < mask.size(); ++w) {
    auto bits = static_cast<uint32_t>(mask[w]);
    if (at == TextRules::kStart) {
      bits &= allowed[w] | vocabulary.stops()[w];
    } else {
      // Inside a character or an escape the grammar itself leaves few.
      for (uint32_t left = bits; left != 0; left &= left - 1) {
        const auto bit = static_cast<uint32_t>(__builtin_ctz(left));
        const std::string_view piece = vocabulary.piece(w * 32 + bit);
        if (rules.run(at, piece) == TextRules::kForbidden) bits &= ~(uint32_t{1} << bit);
      }
    }
    mask[w] = static_cast<int32_t>(bits);
  }
}

GrammarRun::GrammarRun(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrammarRun::~GrammarRun() = default;

Result<bool> GrammarRun::prepare(const CancelToken* cancel) {
  State& s = *state_;
  std::string wrong;
  bool complete = false;
  BLEND_RETURN_IF_ERROR(within(s.budget, kStepNs, cancel, [&] {
    if (!xgrammar_glue::fill_mask(*s.matcher, s.mask, wrong)) {
      return make_error(BLEND_E_INTERNAL, "the grammar's next tokens: %.300s", wrong.c_str());
    }
    complete = xgrammar_glue::complete(*s.matcher);
    return Status::ok();
  }));
  s.keep_rules();
  const auto stops = s.grammar->vocabulary().stops();
  for (size_t w = 0; w < s.mask.size(); ++w) {
    if ((static_cast<uint32_t>(s.mask[w]) & ~stops[w]) != 0) return false;
  }
  if (complete) return true;
  return Status{BLEND_E_INVALID_ARGUMENT,
                "no token of this model goes on as the grammar demands: give one whose texts its "
                "tokenizer can write"};
}

void GrammarRun::apply(std::span<float> logits) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const std::vector<int32_t>& mask = state_->mask;
  const size_t n = std::min(logits.size(), state_->grammar->vocabulary().n_tokens());
  for (size_t w = 0; w * 32 < n; ++w) {
    const auto bits = static_cast<uint32_t>(mask[w]);
    if (bits == ~uint32_t{0}) continue;
    const size_t end = std::min<size_t>(n, w * 32 + 32);
    for (size_t i = w * 32; i < end; ++i) {
      if ((bits >> (i % 32) & 1) == 0) logits[i] = kNever;
    }
  }
  std::fill(logits.begin() + static_cast<std::ptrdiff_t>(n), logits.end(), kNever);
}

Status GrammarRun::accept(int32_t token, const CancelToken* cancel) {
  State& s = *state_;
  std::string wrong;
  BLEND_RETURN_IF_ERROR(within(s.budget, kStepNs, cancel, [&] {
    if (xgrammar_glue::accept(*s.matcher, token, wrong)) return Status::ok();
    return make_error(BLEND_E_INTERNAL, "the grammar refuses token %d, which it allowed%s%.300s",
                      token, wrong.empty() ? "" : ": ", wrong.c_str());
  }));
  s.at = s.rules.run(s.at, s.grammar->vocabulary().piece(static_cast<size_t>(token)));
  return Status::ok();
}

Grammar::Grammar(std::shared_ptr<const GrammarVocabulary> vocabulary, bool json)
    : vocabulary_(std::move(vocabulary)), compiled_(std::make_unique<Compiled>()), json_(json) {}
Grammar::~Grammar() = default;

Result<std::shared_ptr<const Grammar>> Grammar::compile(
    std::shared_ptr<const GrammarVocabulary> vocabulary, const GrammarOptions& options,
    const CancelToken* cancel) {
  BLEND_RETURN_IF_ERROR(check_size(options.text, options.most_text));
  std::string text;  // of a schema: what is kept of it, below
  if (options.kind == GrammarKind::json) {
    text = kAnyObject;
  } else if (options.kind != GrammarKind::json_schema) {
    text = options.text;
  }
  const bool json = options.kind == GrammarKind::json || options.kind == GrammarKind::json_schema;
  std::shared_ptr<Grammar> made(new Grammar(std::move(vocabulary), json));
  std::string wrong, remark;
  Budget budget(options.n_bytes);
  BLEND_RETURN_IF_ERROR(within(budget, options.cpu_ns, cancel, [&]() -> Status {
    if (options.kind == GrammarKind::json_schema) {
      BLEND_ASSIGN(text, grammar::kept_json_schema(
                             options.text, xgrammar_glue::pattern_stands_in_json, options.whose));
    }
    made->compiled_->glue = xgrammar_glue::compile(made->vocabulary_->glue(),
                                                   language_of(options.kind), text, wrong, remark);
    return made->compiled_->glue != nullptr ? Status::ok() : invalid(options.kind, wrong);
  }));
  if (!remark.empty()) {
    return make_error(BLEND_E_UNSUPPORTED, "the grammar asks for what cannot be kept: %.400s",
                      remark.c_str());
  }
  // What nothing satisfies is found here rather than in the middle of a call.
  BLEND_ASSIGN(const auto run, start(made));
  if (auto next = run->prepare(cancel); !next.is_ok()) {
    if (next.status().code() != BLEND_E_INVALID_ARGUMENT) return next.status();
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "nothing that this model's tokenizer can write satisfies the grammar"};
  }
  return std::shared_ptr<const Grammar>(std::move(made));
}

Result<std::unique_ptr<GrammarRun>> Grammar::start(std::shared_ptr<const Grammar> grammar) {
  auto state = std::make_unique<GrammarRun::State>(
      grammar, grammar->json_ ? TextRules::Kind::json : TextRules::Kind::text);
  std::string wrong;
  BLEND_RETURN_IF_ERROR(within(state->budget, kStepNs, nullptr, [&] {
    state->matcher = xgrammar_glue::start(*grammar->compiled_->glue, wrong);
    if (state->matcher != nullptr) return Status::ok();
    return make_error(BLEND_E_INTERNAL, "the grammar cannot be started: %.300s", wrong.c_str());
  }));
  return std::unique_ptr<GrammarRun>(new GrammarRun(std::move(state)));
}

}  // namespace blend
