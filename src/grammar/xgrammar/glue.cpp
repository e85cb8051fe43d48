#include "grammar/xgrammar/glue.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <exception>
#include <new>
#include <optional>
#include <unordered_set>

#include "grammar_functor.h"
#include "support/logging.h"
#include "support/recursion_guard.h"

// What xgrammar leaves to its host with XGRAMMAR_LOG_CUSTOMIZE, and, in place of its own source,
// the limit that it would read from the environment.
namespace xgrammar {
namespace {

struct Refused : std::exception {
  explicit Refused(std::string why) : sentence(std::move(why)) {}
  const char* what() const noexcept override { return sentence.c_str(); }
  std::string sentence;
};

// Where the warnings of this thread's compile() go; null: nowhere.
thread_local std::string* remark_of_call = nullptr;

}  // namespace

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw Refused(message);
}

// Called by destructors.
void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level != XGRAMMAR_LOG_LEVEL_WARNING || remark_of_call == nullptr) return;
  if (!remark_of_call->empty()) return;  // the first one is told
  try {
    *remark_of_call = message.empty() ? "a warning" : message;
  } catch (const std::bad_alloc&) {
    // The next allocation of the call fails too, or it is not needed.
  }
}

// A frame of its parsers is about 400 bytes: a thread's stack of 512 KiB is enough.
std::atomic<int> RecursionGuard::max_recursion_depth_{300};

}  // namespace xgrammar

namespace blend::xgrammar_glue {

struct Vocabulary {
  xgrammar::TokenizerInfo info;
};
struct Compiled {
  xgrammar::CompiledGrammar grammar;
};
struct Matcher {
  xgrammar::GrammarMatcher matcher;
};

namespace {

struct Remarks {
  explicit Remarks(std::string& remark) { xgrammar::remark_of_call = &remark; }
  ~Remarks() { xgrammar::remark_of_call = nullptr; }
};

// `make()`, or null and why not.
template <typename Make>
auto guarded(std::string& wrong, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    wrong = e.what();
    if (wrong.empty()) wrong = "it is not valid";
  }
  return nullptr;
}

}  // namespace

Vocabulary* make_vocabulary(const std::vector<std::string>& pieces,
                            const std::vector<int32_t>& stop_tokens, std::string& wrong) {
  return guarded(wrong, [&] {
    return new Vocabulary{xgrammar::TokenizerInfo(pieces, xgrammar::VocabType::RAW,
                                                  static_cast<int>(pieces.size()), stop_tokens)};
  });
}

Compiled* compile(const Vocabulary& vocabulary, Language language, const std::string& text,
                  std::string& wrong, std::string& remark) {
  return guarded(wrong, [&] {
    const Remarks remarks(remark);
    // On this thread alone, and nothing is kept for the next grammar.
    xgrammar::GrammarCompiler compiler(vocabulary.info, 1, false);
    switch (language) {
      case Language::json_schema:
        // On one line, ", " and ": " between values. Strict: no members or items but those that
        // the schema has.
        return new Compiled{compiler.CompileJSONSchema(text, false)};
      case Language::regex:
        return new Compiled{compiler.CompileRegex(text)};
      case Language::ebnf:
        break;
    }
    return new Compiled{compiler.CompileGrammar(text, "root")};
  });
}

// What JSONSchemaConverter::RegexExpression asks before it takes the pattern for raw JSON.
bool pattern_stands_in_json(const std::string& pattern) {
  std::string wrong;
  return guarded(wrong, [&]() -> const std::string* {
           for (const char c : pattern) {
             if (c < 0x20 || c > 0x7e) return nullptr;
           }
           auto made = xgrammar::GrammarFSMBuilder::Regex(pattern, true);
           if (!made.IsOk()) return nullptr;
           const auto automaton = std::move(made).Unwrap();
           std::unordered_set<int> reachable;
           automaton.GetReachableStates(&reachable);
           for (const int state : reachable) {
             if (automaton.IsEndState(state)) return &pattern;
           }
           return nullptr;
         }) != nullptr;
}

Matcher* start(const Compiled& compiled, std::string& wrong) {
  return guarded(wrong, [&] { return new Matcher{xgrammar::GrammarMatcher(compiled.grammar)}; });
}

bool fill_mask(Matcher& matcher, std::span<int32_t> mask, std::string& wrong) {
  return guarded(wrong, [&] {
           DLTensor tensor{};
           auto size = static_cast<int64_t>(mask.size());
           tensor.data = mask.data();
           tensor.device = {kDLCPU, 0};
           tensor.ndim = 1;
           tensor.dtype = {kDLInt, 32, 1};
           tensor.shape = &size;
           matcher.matcher.FillNextTokenBitmask(&tensor);
           return &matcher;
         }) != nullptr;
}

bool accept(Matcher& matcher, int32_t token, std::string& wrong) {
  return guarded(wrong, [&] { return matcher.matcher.AcceptToken(token) ? &matcher : nullptr; }) !=
         nullptr;
}

bool complete(const Matcher& matcher) { return matcher.matcher.IsCompleted(); }

void destroy(Vocabulary* vocabulary) noexcept { delete vocabulary; }
void destroy(Compiled* compiled) noexcept { delete compiled; }
void destroy(Matcher* matcher) noexcept { delete matcher; }

}  // namespace blend::xgrammar_glue
