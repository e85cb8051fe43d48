// Text tables and human-readable quantities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace blend_cli {

// Columns as wide as their widest cell. Cells are made printable, as many are names out of files.
// Columns of numbers (by their second row) are aligned right, unless all are left. For one thread.
class Table {
 public:
  enum class Align { numbers_right, all_left };
  explicit Table(std::vector<std::string> header, Align align = Align::numbers_right)
      : align_(align) {
    add(std::move(header));
  }
  void add(std::vector<std::string> row);
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  Align align_;
};

std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string bytes_text(uint64_t bytes);             // "1.50 MiB"
std::string ms_text(uint64_t ns);                   // "12.34 ms"
std::string share_text(double part, double whole);  // "15.0 %"
std::string time_text(int64_t unix_s);              // "2026-01-31 12:00:00" UTC
std::string kl_text(double kl);                     // "0.0123", "1.2e-05", "0"
std::string hex_text(const uint8_t* bytes, size_t n);

}  // namespace blend_cli
