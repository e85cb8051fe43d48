// Calls of functions in an answer.
#ifndef BLEND_SHIM_CALLS_H
#define BLEND_SHIM_CALLS_H

#include "model.h"

namespace blend_shim {

class CallReaderOptions {
 public:
  CallReaderOptions() noexcept;
  BLEND_CALL_READER_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

struct CallInfo {
  BLEND_CALL_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

#ifndef SWIG
struct CallReaderState;
#endif

// Every function may be called on any thread; while another call runs it gives
// BLEND_SHIM_E_IN_USE.
class CallReader {
 public:
  // Null on failure.
  static CallReader* open(const Model& model, const CallReaderOptions& options,
                          Outcome& out) noexcept;
  ~CallReader();
  // The text that is now known to be no part of a call; token: -1: none.
  std::string add(int32_t token, const std::string& piece, Outcome& out) noexcept;
  std::string end(bool is_cut, Outcome& out) noexcept;
  size_t n_calls(Outcome& out) const noexcept;
  CallInfo call(size_t i, Outcome& out) const noexcept;
  void close() noexcept;

 private:
#ifndef SWIG
  explicit CallReader(std::shared_ptr<Slot<CallReaderState>> slot) noexcept;
  std::shared_ptr<Slot<CallReaderState>> slot_;
#else
  CallReader();
#endif
};

}  // namespace blend_shim

#endif
