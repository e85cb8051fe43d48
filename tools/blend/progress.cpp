#include "progress.h"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <utility>

#include "printable.h"

namespace blend_cli {
namespace {

std::mutex g_stderr;  // one line at a time
constexpr int kBarWidth = 30;
constexpr const char* kEraseLine = "\r\x1b[K";
// Work shorter than this needs no bar.
constexpr auto kPatience = std::chrono::milliseconds(200);

bool stderr_is_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal;
}

}  // namespace

void print_note(const std::string& text) { print_error("note: " + text); }

void print_error(const std::string& text) {
  const std::lock_guard lock(g_stderr);
  std::fprintf(stderr, "%sblend: %s\n", stderr_is_terminal() ? kEraseLine : "",
               printable(text).c_str());
}

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)),
      enabled_(stderr_is_terminal()),
      begin_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() { erase(); }

void ProgressBar::erase() {
  if (last_percent_ < 0) return;
  last_percent_ = -1;
  const std::lock_guard lock(g_stderr);
  std::fputs(kEraseLine, stderr);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  if (!enabled_ || total == 0 || std::chrono::steady_clock::now() - begin_ < kPatience) return;
  const int percent =
      static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == last_percent_) return;
  last_percent_ = percent;
  const int filled = percent * kBarWidth / 100;
  const std::lock_guard lock(g_stderr);
  std::fprintf(stderr, "%s%s [%s%s] %3d %%", kEraseLine, title_.c_str(),
               std::string(static_cast<size_t>(filled), '#').c_str(),
               std::string(static_cast<size_t>(kBarWidth - filled), '.').c_str(), percent);
  std::fflush(stderr);
}

blendpp::ProgressFn ProgressBar::callback() {
  return [this](uint64_t done, uint64_t total) {
    update(done, total);
    return true;
  };
}

}  // namespace blend_cli
