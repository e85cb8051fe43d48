#include "chat/clock.h"

#include <cstdio>
#include <ctime>

namespace blend::chat {
namespace {

constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};
constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};

std::string digits(int value, int width) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "%0*d", width, value);
  return buffer;
}

}  // namespace

Result<std::string> format_time(std::string_view format, int64_t seconds) {
  if (format.size() > 256) return make_error(BLEND_E_UNSUPPORTED, "a date's format is too long");
  if (format.find('\0') != std::string_view::npos) {
    return make_error(BLEND_E_UNSUPPORTED, "a date's format with a character 0");
  }
  std::tm t{};
  const auto time = static_cast<std::time_t>(seconds);
  if (localtime_r(&time, &t) == nullptr || t.tm_mon < 0 || t.tm_mon > 11 || t.tm_wday < 0 ||
      t.tm_wday > 6) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "%lld seconds after 1970 are not a date",
                      static_cast<long long>(seconds));
  }
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    char c = ++i < format.size() ? format[i] : '\0';
    const bool bare = c == '-';  // no leading zeros
    if (bare) c = ++i < format.size() ? format[i] : '\0';
    const auto number = [bare](int value, int width) { return digits(value, bare ? 1 : width); };
    const char* const month = kMonths[t.tm_mon];
    const char* const day = kDays[t.tm_wday];
    switch (c) {
      case 'd':
        out += number(t.tm_mday, 2);
        break;
      case 'm':
        out += number(t.tm_mon + 1, 2);
        break;
      case 'Y':
        out += std::to_string(int64_t{t.tm_year} + 1900);
        break;
      case 'y':
        out += number(t.tm_year % 100, 2);
        break;
      case 'B':
        out += month;
        break;
      case 'b':
        out += std::string(month).substr(0, 3);
        break;
      case 'A':
        out += day;
        break;
      case 'a':
        out += std::string(day).substr(0, 3);
        break;
      case 'H':
        out += number(t.tm_hour, 2);
        break;
      case 'M':
        out += number(t.tm_min, 2);
        break;
      case 'S':
        out += number(t.tm_sec, 2);
        break;
      case 'I':
        out += number(t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12, 2);
        break;
      case 'p':
        out += t.tm_hour < 12 ? "AM" : "PM";
        break;
      case 'j':
        out += number(t.tm_yday + 1, 3);
        break;
      case '%':
        out.push_back('%');
        break;
      default:
        return make_error(BLEND_E_UNSUPPORTED,
                          "strftime_now with '%%%c', which libblend does not support; give another "
                          "template",
                          c >= 0x20 && c < 0x7f ? c : '?');
    }
  }
  return out;
}

}  // namespace blend::chat
