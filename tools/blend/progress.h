// Progress and notes on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "blend/blend.hpp"

namespace blend_cli {

// A line on stderr, made printable, that does not tear a progress bar apart. Thread-safe.
void print_note(const std::string& text);
// Where notes go instead; empty: to stderr. Not while other threads may print some.
void send_notes_to(std::function<void(const std::string& text)> sink);
// The same, for the error that ends the command.
void print_error(const std::string& text);

// A bar on stderr, erased on destruction. Where stderr is no terminal, work that may take minutes
// (`lines`) writes a line instead, one every few seconds; BLEND_PROGRESS_SECONDS in the environment
// says how many, and 0 asks for none. Used by one thread.
class ProgressBar {
 public:
  enum class Elsewhere { nothing, lines };
  explicit ProgressBar(std::string title, Elsewhere elsewhere = Elsewhere::nothing);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(uint64_t done, uint64_t total);
  // Until the next update: call before something else is written.
  void erase();
  // Works while the bar lives.
  blendpp::ProgressFn callback();

 private:
  void draw(int percent);
  void write_line(int percent);

  std::string title_;
  bool drawn_;      // on a terminal
  double every_s_;  // between lines; 0: none
  int last_percent_ = -1;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace blend_cli
