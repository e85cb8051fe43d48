// Loop: the state of a running `for`, which its body sees as `loop`.
#pragma once

#include <cstddef>
#include <optional>

#include "chat/value.h"

namespace blend::chat {

struct Statement;

// Items are taken one after another: the filter is evaluated for an item when the loop reaches it,
// or when the body asks for the next one.
struct Loop {
  Value items;      // a list
  int depth = 0;    // nesting of that list at the beginning
  size_t next = 0;  // index of the first item that was not taken
  size_t index = 0;
  std::optional<Value> before;
  Value now;
  std::optional<Value> after;            // the next item, if it was asked for ahead
  const Statement* statement = nullptr;  // the `for`, if it has a filter; otherwise null
  size_t scopes = 0;                     // scopes at the loop's beginning, which the filter sees
  size_t asides = 0;                     // filters that were running at the loop's beginning
  size_t length = 0;                     // if there is no filter
  bool judges = false;                   // the filter is running
  bool ended = false;
};

}  // namespace blend::chat
