#include "table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <ctime>

#include "printable.h"

namespace blend_cli {
namespace {

// Terminal columns of a UTF-8 text, near enough: its code points.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  }));
}

bool stands_right(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
                           cell[0] == '-' || cell[0] == '+');
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::str() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  // A column's title is aligned as its cells are.
  std::vector<bool> right(widths.size(), false);
  if (rows_.size() > 1 && align_ == Align::numbers_right) {
    for (size_t i = 0; i < rows_[1].size(); ++i) right[i] = stands_right(rows_[1][i]);
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - width_of(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (right[i] ? pad + row[i] : row[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string format(const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  std::va_list again;
  va_copy(again, args);
  const int n = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(static_cast<size_t>(std::max(n, 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < kUnits.size(); ++unit) value /= 1024.0;
  return format(unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
}

std::string ms_text(uint64_t ns) { return format("%.2f ms", static_cast<double>(ns) / 1e6); }

std::string share_text(double part, double whole) {
  return whole > 0 ? format("%.1f %%", 100.0 * part / whole) : "-";
}

std::string time_text(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts = {};
  gmtime_r(&time, &parts);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

std::string hex_text(const uint8_t* bytes, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += format("%02x", bytes[i]);
  return text;
}

std::string kl_text(double kl) {
  if (kl == 0) return "0";
  return format(kl >= 0.001 && kl < 1000 ? "%.4f" : "%.1e", kl);
}

}  // namespace blend_cli
