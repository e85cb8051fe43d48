// Loop: how far a `for` has come; what its body sees as `loop`.
#pragma once

#include <cstddef>
#include <optional>

#include "chat/value.h"

namespace blend::chat {

struct Statement;

// Items are taken one after another: the filter judges an item when the loop comes to it, or when
// the body asks for the next one.
struct Loop {
  Value items;      // a list
  int depth = 0;    // of the list that the loop began with
  size_t next = 0;  // of the items: the first that was not taken
  size_t index = 0;
  std::optional<Value> before;
  Value now;
  std::optional<Value> after;            // what was asked for ahead
  const Statement* statement = nullptr;  // which has a filter; null: none
  size_t scopes = 0;                     // how many there were where the loop began: the filter's
  size_t asides = 0;                     // how many filters were being asked there
  size_t length = 0;                     // where there is no filter
  bool judges = false;                   // the filter is asked
  bool ended = false;
};

}  // namespace blend::chat
