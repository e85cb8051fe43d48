#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "printable.h"

namespace blend_cli {
namespace {

std::mutex g_stderr;  // one line at a time
std::function<void(const std::string& text)> g_notes;
constexpr int kBarWidth = 30;
constexpr const char* kEraseLine = "\r\x1b[K";
// Work shorter than this needs no bar.
constexpr auto kPatience = std::chrono::milliseconds(200);

// Seconds between lines.
double pace() {
  constexpr double kUsual = 5;
  const char* const given = std::getenv("BLEND_PROGRESS_SECONDS");
  return given == nullptr ? kUsual : std::max(0.0, std::strtod(given, nullptr));
}

bool stderr_is_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal;
}

}  // namespace

void print_note(const std::string& text) { g_notes ? g_notes(text) : print_error("note: " + text); }

void send_notes_to(std::function<void(const std::string& text)> sink) { g_notes = std::move(sink); }

void print_error(const std::string& text) {
  const std::lock_guard lock(g_stderr);
  std::fprintf(stderr, "%sblend: %s\n", stderr_is_terminal() ? kEraseLine : "",
               printable(text).c_str());
}

ProgressBar::ProgressBar(std::string title, Elsewhere elsewhere)
    : title_(std::move(title)),
      drawn_(stderr_is_terminal()),
      every_s_(drawn_ || elsewhere == Elsewhere::nothing ? 0 : pace()),
      begin_(std::chrono::steady_clock::now()),
      last_line_(begin_) {}

ProgressBar::~ProgressBar() { erase(); }

void ProgressBar::erase() {
  if (!drawn_ || last_percent_ < 0) return;
  last_percent_ = -1;
  const std::lock_guard lock(g_stderr);
  std::fputs(kEraseLine, stderr);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  if ((!drawn_ && every_s_ == 0) || total == 0) return;
  const int percent =
      static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  drawn_ ? draw(percent) : write_line(percent);
}

void ProgressBar::write_line(int percent) {
  const auto now = std::chrono::steady_clock::now();
  if (percent == last_percent_ ||
      std::chrono::duration<double>(now - last_line_).count() < every_s_)
    return;
  last_line_ = now;
  last_percent_ = percent;
  const std::chrono::duration<double> since = now - begin_;
  const std::lock_guard lock(g_stderr);
  std::fprintf(stderr, "blend: %s: %d %% after %.0f s\n", title_.c_str(), percent, since.count());
}

void ProgressBar::draw(int percent) {
  if (percent == last_percent_ || std::chrono::steady_clock::now() - begin_ < kPatience) return;
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
