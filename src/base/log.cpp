#include "base/log.h"

namespace blend {

void LogRecord::add_text(const char* key, std::string_view text) {
  fields.push_back({key, BLEND_FIELD_TEXT, std::string(text), 0, 0});
}

void LogRecord::add_integer(const char* key, int64_t integer) {
  fields.push_back({key, BLEND_FIELD_INTEGER, {}, integer, 0});
}

void LogRecord::add_number(const char* key, double number) {
  fields.push_back({key, BLEND_FIELD_NUMBER, {}, 0, number});
}

}  // namespace blend
