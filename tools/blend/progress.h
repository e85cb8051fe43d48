// Progress and notes on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "blend/blend.hpp"

namespace blend_cli {

// A line on stderr, made printable, that does not tear a progress bar apart. Thread-safe.
void print_note(const std::string& text);
// The same, for the error that ends the command.
void print_error(const std::string& text);

// A bar on stderr, drawn only when stderr is a terminal, erased on destruction. Used by one thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(uint64_t done, uint64_t total);
  // Until the next update: call before something else is written.
  void erase();
  // Works while the bar lives.
  blendpp::ProgressFn callback();

 private:
  std::string title_;
  bool enabled_;
  int last_percent_ = -1;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace blend_cli
