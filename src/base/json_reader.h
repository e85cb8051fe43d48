// JsonView: a value of a Json tree together with its path, so that errors name it
// ("model.merges[3]").
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace blend {

// A value type; refers to the tree. Getters give FORMAT where the value is of another kind.
class JsonView {
 public:
  JsonView(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // A member; nullopt where it is absent or null.
  std::optional<JsonView> get(std::string_view name) const;
  // FORMAT where it is.
  Result<JsonView> need(std::string_view name) const;
  JsonView element(size_t index) const;

  Result<const Json::Object*> object() const;
  Result<const Json::Array*> array() const;
  Result<std::string> string() const;
  Result<bool> boolean() const;
  Result<int64_t> integer(int64_t min, int64_t max) const;
  Result<double> number() const;
  Result<float> positive() const;  // finite as a float, and above 0

  // For members that may be absent.
  Result<std::string> string_or(std::string_view name, const char* otherwise) const;
  Result<bool> boolean_or(std::string_view name, bool otherwise) const;
  Result<int64_t> integer_or(std::string_view name, int64_t otherwise, int64_t min,
                             int64_t max) const;
  // From 1 to max.
  Result<uint32_t> count_or(std::string_view name, uint32_t otherwise, uint32_t max) const;

  Status error(int32_t code, const char* what) const;  // "path: what"

 private:
  Status wrong_kind(const char* wanted) const;
  const Json* value_;
  std::string path_;
};

}  // namespace blend
