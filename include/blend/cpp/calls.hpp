// Calls of functions in an answer.
#ifndef BLEND_CPP_CALLS_HPP
#define BLEND_CPP_CALLS_HPP

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "blend/calls.h"
#include "blend/cpp/model.hpp"

namespace blendpp {

using CallReaderOptions =
    detail::Initialised<blend_call_reader_options, blend_call_reader_options_init>;

// Its strings are valid while the reader is open.
using CallInfo = detail::Sized<blend_call_info>;

// Finds the calls in one answer while it is generated; see blend_call_reader_add. Needs nothing of
// the model once it is made. Not thread-safe.
class CallReader {
 public:
  CallReader(const Model& model, const CallReaderOptions& options) {
    detail::Outcome outcome;
    blend_call_reader* raw = nullptr;
    outcome.check(blend_call_reader_open(&raw, model.get(), &options, outcome.out()));
    handle_ = {raw, {model.log()}};
  }

  // The text that is now known to be no part of a call, valid until the next call with this reader.
  // token: that of the piece, or -1.
  std::string_view add(int32_t token, std::string_view text) {
    detail::Outcome outcome;
    const char* shown = nullptr;
    size_t n = 0;
    outcome.check(blend_call_reader_add(handle_.get(), token, text.data(), text.size(), &shown, &n,
                                        outcome.out()));
    return {shown, n};
  }
  // The same at the end. is_cut: the model did not end the answer.
  std::string_view end(bool is_cut) {
    detail::Outcome outcome;
    const char* shown = nullptr;
    size_t n = 0;
    outcome.check(blend_call_reader_end(handle_.get(), is_cut ? 1 : 0, &shown, &n, outcome.out()));
    return {shown, n};
  }
  // So far.
  size_t n_calls() const {
    detail::Outcome outcome;
    size_t n = 0;
    outcome.check(blend_call_reader_get_n_calls(handle_.get(), &n, outcome.out()));
    return n;
  }
  CallInfo call(size_t index) const {
    return detail::filled<CallInfo>(&blend_call_reader_get_call, handle_.get(), index);
  }
  std::vector<CallInfo> calls() const {
    std::vector<CallInfo> out(n_calls());
    for (size_t i = 0; i < out.size(); ++i) out[i] = call(i);
    return out;
  }

 private:
  detail::Handle<blend_call_reader, blend_call_reader_close> handle_;
};

}  // namespace blendpp

#endif
