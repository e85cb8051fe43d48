// The filters, tests and methods that chat templates use, as Jinja 3.1 and Python 3 have them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace blend::chat {

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // By position or by name; null: not given.
  const Value* get(size_t index, std::string_view name) const;
};

// UNSUPPORTED: libblend has no `what` ("filter", ...) of that name.
Status unknown(const char* what, const std::string& name);
// INVALID_ARGUMENT: `what` cannot be applied to this kind of value.
Status wrong(const char* what, const Value& value);

// UNSUPPORTED names a filter, test or method that libblend does not have.
Result<Value> apply_filter(const std::string& name, const Value& value, const CallArguments& given,
                           Meter& meter);
Result<bool> apply_test(const std::string& name, const Value& value, const CallArguments& given,
                        Meter& meter);
Result<Value> call_method(const std::string& name, const Value& self, const CallArguments& given,
                          Meter& meter);
bool is_method(const Value& self, std::string_view name);
// Whether the value has such a member in Python that libblend does not support.
bool is_unknown_member(const Value& self, std::string_view name);

// value[index], or value.name; undefined if there is no such member.
Result<Value> item_of(const Value& value, const Value& index, Meter& meter);
// value[begin:end:step], each null or a value.
Result<Value> slice_of(const Value& value, const Value* begin, const Value* end, const Value* step,
                       Meter& meter);
// `needle in value`
Result<bool> contains(const Value& value, const Value& needle, Meter& meter);
// The items that a loop over the value visits, as a list; the value itself if it is a list.
// INVALID_ARGUMENT: it has no items.
Result<Value> listed(const Value& value, Meter& meter);
// The same as a copy that the caller may change.
Result<List> items_of(const Value& value, Meter& meter);

}  // namespace blend::chat
