#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace blend {
namespace {

using Parser = nlohmann::json;

// nlohmann's parser calls these; returning false ends it. It throws nothing but bad_alloc.
class Builder {
 public:
  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }
  size_t error_at() const { return error_at_; }

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(int64_t value) { return add(Json(value)); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return add(Json(static_cast<int64_t>(value)));
    return add(Json(Json::Wide{static_cast<double>(value)}));
  }
  // Whole numbers of more than 64 bits come here too.
  bool number_float(double value, const std::string& written) {
    if (written.find_first_of(".eE") != std::string::npos) return add(Json(value));
    return add(Json(Json::Wide{value}));
  }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(Parser::binary_t&) { return refuse("a binary value"); }
  bool start_object(size_t) { return open(Json(Json::Object())); }
  bool start_array(size_t) { return open(Json(Json::Array())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
    error_at_ = position;
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    const std::string text = e.what();
    const size_t from = text.find(": ");
    return refuse(from == std::string::npos ? text : text.substr(from + 2));
  }

 private:
  struct Level {
    Json value;
    std::string name;  // of the next member
  };

  bool refuse(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }
  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = open_.back();
    if (Json::Array* const array = level.value.array()) {
      array->push_back(std::move(value));
    } else {
      level.value.object()->emplace_back(std::move(level.name), std::move(value));
    }
    return true;
  }
  bool open(Json value) {
    if (open_.size() == static_cast<size_t>(Json::kMaxDepth)) {
      return refuse("values are nested more than " + std::to_string(Json::kMaxDepth) + " deep");
    }
    open_.push_back({std::move(value), {}});
    return true;
  }
  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    if (const Json::Object* const object = value.object()) {
      if (const std::string* const name = repeated(*object)) {
        return refuse("the name '" + name->substr(0, 80) + "' stands twice in one object");
      }
    }
    return add(std::move(value));
  }
  // A name that occurs twice; null: none does. By sorting, which no choice of names makes slow.
  static const std::string* repeated(const Json::Object& object) {
    std::vector<const std::string*> names;
    names.reserve(object.size());
    for (const auto& [name, value] : object) names.push_back(&name);
    std::sort(names.begin(), names.end(),
              [](const std::string* a, const std::string* b) { return *a < *b; });
    const auto same =
        std::adjacent_find(names.begin(), names.end(),
                           [](const std::string* a, const std::string* b) { return *a == *b; });
    return same == names.end() ? nullptr : *same;
  }

  Json root_;
  std::vector<Level> open_;  // from the outermost value inwards
  std::string error_;
  size_t error_at_ = 0;
};

}  // namespace

Result<Json> Json::parse(std::string_view text) {
  Builder builder;
  if (Parser::sax_parse(text.begin(), text.end(), &builder, Parser::input_format_t::json)) {
    return builder.take();
  }
  if (builder.error_at() != 0) {
    return make_error(BLEND_E_FORMAT, "no JSON at byte %zu: %.200s", builder.error_at(),
                      builder.error().c_str());
  }
  return make_error(BLEND_E_FORMAT, "the JSON cannot be used: %.200s", builder.error().c_str());
}

bool Json::integer(int64_t& out) const {
  if (const int64_t* const i = std::get_if<int64_t>(&value_)) {
    out = *i;
    return true;
  }
  const double* const d = std::get_if<double>(&value_);
  constexpr double kLimit = 9007199254740992.0;  // 2^53: whole numbers up to it are exact
  if (d == nullptr || std::trunc(*d) != *d || std::fabs(*d) > kLimit) return false;
  out = static_cast<int64_t>(*d);
  return true;
}

bool Json::number(double& out) const {
  if (const int64_t* const i = std::get_if<int64_t>(&value_)) {
    out = static_cast<double>(*i);
    return true;
  }
  if (const Wide* const wide = std::get_if<Wide>(&value_)) {
    out = wide->value;
    return true;
  }
  const double* const d = std::get_if<double>(&value_);
  if (d != nullptr) out = *d;
  return d != nullptr;
}

const Json* Json::find(std::string_view name) const {
  const Object* const members = object();
  if (members == nullptr) return nullptr;
  const auto it = std::find_if(members->begin(), members->end(),
                               [&](const Member& m) { return m.first == name; });
  return it == members->end() ? nullptr : &it->second;
}

const char* Json::kind() const {
  constexpr const char* kKinds[] = {"null",     "true or false", "an integer", "a number",
                                    "a number", "a string",      "an array",   "an object"};
  return kKinds[value_.index()];
}

}  // namespace blend
