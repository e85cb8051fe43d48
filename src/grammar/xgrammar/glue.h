// All that is used of xgrammar. Its code is linked into one object with xgrammar's own
// (cmake/grammar.cmake), from which nothing else can be seen.
//
// Functions throw std::bad_alloc alone; what is wrong otherwise is a sentence in `wrong`. None of
// them prints or starts a thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace blend::xgrammar_glue {

enum class Language { json_schema, regex, ebnf };

// Immutable; safe for concurrent use. So is Compiled. A Matcher is not thread-safe. Each keeps
// what it was made from.
struct Vocabulary;
struct Compiled;
struct Matcher;

// pieces: [n_vocab], the bytes of each token; "": it never occurs in a text.
Vocabulary* make_vocabulary(const std::vector<std::string>& pieces,
                            const std::vector<int32_t>& stop_tokens, std::string& wrong);
// Null: `wrong` says why. `remark`: what of the grammar will not be kept; "": all is.
Compiled* compile(const Vocabulary& vocabulary, Language language, const std::string& text,
                  std::string& wrong, std::string& remark);
// Whether a pattern of ASCII is known and matches strings in which JSON escapes nothing.
bool pattern_stands_in_json(const std::string& pattern);
Matcher* start(const Compiled& compiled, std::string& wrong);

// The tokens that may come next, a bit each: [(n_vocab + 31) / 32]. Stop tokens are among them
// where the text may end. False: it failed.
bool fill_mask(Matcher& matcher, std::span<int32_t> mask, std::string& wrong);
// False: the grammar does not allow the token, or it failed.
bool accept(Matcher& matcher, int32_t token, std::string& wrong);
// Whether the text may end here.
bool complete(const Matcher& matcher);

void destroy(Vocabulary* vocabulary) noexcept;
void destroy(Compiled* compiled) noexcept;
void destroy(Matcher* matcher) noexcept;

}  // namespace blend::xgrammar_glue
