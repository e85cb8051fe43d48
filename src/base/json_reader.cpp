#include "base/json_reader.h"

#include <cmath>

namespace blend {

std::optional<JsonView> JsonView::get(std::string_view name) const {
  const Json* const member = value_->find(name);
  if (member == nullptr || member->is_null()) return std::nullopt;
  return JsonView(*member, path_.empty() ? std::string(name) : path_ + "." + std::string(name));
}

Result<JsonView> JsonView::need(std::string_view name) const {
  BLEND_RETURN_IF_ERROR(object().status());
  std::optional<JsonView> member = get(name);
  if (!member) {
    return make_error(BLEND_E_FORMAT, "%s%s'%.*s' is missing", path_.c_str(),
                      path_.empty() ? "" : ": ", static_cast<int>(name.size()), name.data());
  }
  return *std::move(member);
}

JsonView JsonView::element(size_t index) const {
  return {(*value_->array())[index], path_ + "[" + std::to_string(index) + "]"};
}

Status JsonView::error(int32_t code, const char* what) const {
  return make_error(code, "%.200s: %s", path_.empty() ? "the file" : path_.c_str(), what);
}

Status JsonView::wrong_kind(const char* wanted) const {
  return make_error(BLEND_E_FORMAT, "%.200s is %s where %s is expected",
                    path_.empty() ? "the file" : path_.c_str(), value_->kind(), wanted);
}

Result<const Json::Object*> JsonView::object() const {
  if (const Json::Object* const o = value_->object()) return o;
  return wrong_kind("an object");
}

Result<const Json::Array*> JsonView::array() const {
  if (const Json::Array* const a = value_->array()) return a;
  return wrong_kind("an array");
}

Result<std::string> JsonView::string() const {
  if (const std::string* const s = value_->string()) return *s;
  return wrong_kind("a string");
}

Result<bool> JsonView::boolean() const {
  if (const bool* const b = value_->boolean()) return *b;
  return wrong_kind("true or false");
}

Result<int64_t> JsonView::integer(int64_t min, int64_t max) const {
  int64_t i = 0;
  if (!value_->integer(i)) return wrong_kind("an integer");
  if (i >= min && i <= max) return i;
  return make_error(BLEND_E_FORMAT, "%.200s is %lld; %lld to %lld make sense", path_.c_str(),
                    static_cast<long long>(i), static_cast<long long>(min),
                    static_cast<long long>(max));
}

Result<double> JsonView::number() const {
  double d = 0;
  if (!value_->number(d) || !std::isfinite(d)) return wrong_kind("a finite number");
  return d;
}

Result<float> JsonView::positive() const {
  BLEND_ASSIGN(const double given, number());
  const auto narrow = static_cast<float>(given);
  if (narrow > 0 && std::isfinite(narrow)) return narrow;
  return error(BLEND_E_FORMAT, "it must be a finite number above 0");
}

Result<std::string> JsonView::string_or(std::string_view name, const char* otherwise) const {
  const std::optional<JsonView> member = get(name);
  return member ? member->string() : Result<std::string>(std::string(otherwise));
}

Result<bool> JsonView::boolean_or(std::string_view name, bool otherwise) const {
  const std::optional<JsonView> member = get(name);
  return member ? member->boolean() : Result<bool>(otherwise);
}

Result<int64_t> JsonView::integer_or(std::string_view name, int64_t otherwise, int64_t min,
                                     int64_t max) const {
  const std::optional<JsonView> member = get(name);
  return member ? member->integer(min, max) : Result<int64_t>(otherwise);
}

Result<uint32_t> JsonView::count_or(std::string_view name, uint32_t otherwise, uint32_t max) const {
  BLEND_ASSIGN(const int64_t n, integer_or(name, otherwise, 1, max));
  return static_cast<uint32_t>(n);
}

}  // namespace blend
