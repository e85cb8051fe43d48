// Calls of functions in an answer that comes in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/describe.h"

namespace blend::chat {

struct Call {
  std::string name;
  std::string arguments;  // as the model wrote them
  bool is_cut = false;    // the answer ended inside it: the arguments may end anywhere
};

// Holds back text that may become a call. Calls of unknown functions stay text. Time and memory are
// in proportion to the answer. For one thread at a time.
class CallReader {
 public:
  struct How {
    CallForm form;
    int32_t open_token = -1;  // the control token that stands before a call; -1: none
    std::optional<std::vector<std::string>> names;  // of the functions; none: any
    bool is_call = false;                           // the answer is one call, from its first byte
  };
  explicit CallReader(How how);

  // The text that is now known to be no part of a call; valid until the next call. token: that of
  // the piece, or -1. Without memory it throws, and is as it was before the call.
  std::string_view add(int32_t token, std::string_view piece);
  // The same at the end, after which nothing is added. is_cut: the answer was not complete.
  std::string_view end(bool is_cut);
  bool has_ended() const { return scan_.ended; }
  // So far. They stay where they are.
  const std::deque<Call>& calls() const { return calls_; }

 private:
  // Offsets count from the beginning of held_.
  struct Scan {
    bool in_call = false;
    bool has_begun = false;  // some text was shown, so that a call cannot be the whole answer
    bool ended = false;
    bool after_call = false;  // nothing but white space has come since a call
    size_t shown = 0;         // up to here nothing is held any more
    size_t call = 0;          // where the text of the call begins, after the mark
    size_t at = 0;            // up to here the held text was searched
    bool in_string = false;   // of the call's JSON, at `at`
  };
  template <typename Take>
  std::string_view unless_it_throws(Take take);
  void take();
  bool take_text();
  bool take_call();
  bool has_first_byte();
  size_t find_close();
  bool read_call(std::string_view text, bool is_cut);
  bool read_calls(std::string_view text, bool is_cut);

  const How how_;
  const std::string_view open_, close_;
  std::deque<Call> calls_;
  std::string held_;
  std::string shown_;
  Scan scan_;
};

// By a template's source. tools: a JSON list of the functions, as PromptOptions has it; "": any.
// Errors: those of call_form; INVALID_ARGUMENT names the tool that has no name.
Result<CallReader::How> how_to_read_calls(std::string_view source, const Tokenizer& tokenizer,
                                          std::string_view tools, bool is_call);

}  // namespace blend::chat
