#include "chat/value.h"

#include <algorithm>
#include <numeric>

#include "chat/compare.h"
#include "chat/loop.h"
#include "model/utf8.h"

namespace blend::chat {
namespace {

constexpr size_t kItemWeight = sizeof(Value);

size_t sum(size_t a, size_t b) {
  size_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? SIZE_MAX : out;
}

Status too_deep() {
  return make_error(BLEND_E_UNSUPPORTED, "the template nests lists and dicts more than %d deep",
                    Value::kMaxDepth);
}

// `order`: indices of the members sorted by name, so that equal names are adjacent.
Dict without_repeats(Dict items, const std::vector<uint32_t>& order) {
  std::vector<bool> gone(items.size());
  for (size_t i = 1, first = order[0]; i < order.size(); ++i) {
    if (compare_names(items[first].first, items[order[i]].first) == 0) {
      items[first].second = std::move(items[order[i]].second);
      gone[order[i]] = true;
    } else {
      first = order[i];
    }
  }
  Dict out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!gone[i]) out.push_back(std::move(items[i]));
  }
  return out;
}

}  // namespace

Value Value::undefined(std::string_view name) {
  constexpr size_t kMost = 80;
  if (name.empty()) return {};
  return Value(Undefined{std::make_shared<const std::string>(utf8_begin(name, kMost))});
}

const char* Value::undefined_name() const {
  auto* const undefined = std::get_if<Undefined>(&value_);
  return undefined == nullptr || undefined->name == nullptr ? "" : undefined->name->c_str();
}

Result<Value> Value::list(List items, bool tuple) {
  int depth = 0;
  size_t weight = kItemWeight;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth());
    weight = sum(weight, sum(kItemWeight, item.weight()));
  }
  if (depth >= kMaxDepth) return too_deep();
  return Value(std::make_shared<const Items>(Items{std::move(items), tuple, depth + 1, weight}));
}

Result<Value> Value::dict(Dict items) {
  for (const auto& [name, item] : items) {
    if (is_name(name)) continue;
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "the template names a member of a mapping by %s, and only strings, numbers, "
                      "booleans and none are names",
                      name.kind());
  }
  if (items.size() > UINT32_MAX) return Status::out_of_memory();
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto compare = [&](uint32_t a, uint32_t b) {
    return compare_names(items[a].first, items[b].first);
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int by_name = compare(a, b);
    return by_name != 0 ? by_name < 0 : a < b;
  });
  const auto same = [&](uint32_t a, uint32_t b) { return compare(a, b) == 0; };
  if (std::adjacent_find(order.begin(), order.end(), same) != order.end()) {
    return dict(without_repeats(std::move(items), order));
  }
  int depth = 0;
  size_t weight = kItemWeight;
  for (const auto& [name, item] : items) {
    depth = std::max({depth, name.depth(), item.depth()});
    weight = sum(weight, sum(2 * kItemWeight, sum(name.weight(), item.weight())));
  }
  if (depth >= kMaxDepth) return too_deep();
  return Value(std::make_shared<const Members>(
      Members{std::move(items), std::move(order), depth + 1, weight}));
}

Result<const Value*> Value::find(const Value& name, Meter& meter) const {
  const Value* const none = nullptr;
  const Members* const members = shared<Members>();
  if (members == nullptr || !is_name(name)) return none;
  BLEND_RETURN_IF_ERROR(meter.take_search(members->dict.size(), name_bytes(name)));
  const auto at = std::lower_bound(members->order.begin(), members->order.end(), name,
                                   [&](uint32_t i, const Value& wanted) {
                                     return compare_names(members->dict[i].first, wanted) < 0;
                                   });
  if (at == members->order.end()) return none;
  const auto& [found, value] = members->dict[*at];
  return compare_names(found, name) == 0 ? &value : none;
}

Result<Value> Value::from_json(const Json& json, uint32_t origin) {
  int64_t n = 0;
  double x = 0;
  if (json.is_null()) return none();
  if (const bool* const b = json.boolean()) return of(*b);
  if (const std::string* const s = json.string()) return text(*s, origin);
  if (const Json::Array* const array = json.array()) {
    List items;
    for (const Json& item : *array) {
      BLEND_ASSIGN(Value value, from_json(item, origin));
      items.push_back(std::move(value));
    }
    return list(std::move(items));
  }
  if (const Json::Object* const object = json.object()) {
    Dict items;
    for (const auto& [name, member] : *object) {
      BLEND_ASSIGN(Value value, from_json(member, origin));
      items.emplace_back(text(name, origin), std::move(value));
    }
    return dict(std::move(items));
  }
  if (json.real() != nullptr) return of(*json.real());  // 1.0 is written as 1.0
  if (json.integer(n)) return of(n);
  json.number(x);
  return make_error(BLEND_E_UNSUPPORTED, "%.17g is a whole number of more than 64 bits", x);
}

const List* Value::list() const {
  const Items* const items = shared<Items>();
  return items == nullptr ? nullptr : &items->list;
}

bool Value::is_tuple() const {
  const Items* const items = shared<Items>();
  return items != nullptr && items->tuple;
}

const Dict* Value::dict() const {
  const Members* const members = shared<Members>();
  return members == nullptr ? nullptr : &members->dict;
}

int Value::depth() const {
  if (const Items* const items = shared<Items>()) return items->depth;
  if (const Members* const members = shared<Members>()) return members->depth;
  if (const Loop* const l = loop()) return l->depth;
  // A method contains the value that it belongs to.
  if (const Callable* const c = callable(); c != nullptr && c->self != nullptr) {
    return c->self->depth() + 1;
  }
  return 0;
}

size_t Value::weight() const {
  if (const Text* const t = text()) return t->weight();
  if (const Items* const items = shared<Items>()) return items->weight;
  if (const Members* const members = shared<Members>()) return members->weight;
  return 1;
}

bool Value::as_integer(int64_t& out) const {
  if (const bool* const b = boolean()) {
    out = *b ? 1 : 0;
    return true;
  }
  if (const int64_t* const n = integer()) {
    out = *n;
    return true;
  }
  return false;
}

bool Value::as_number(double& out) const {
  if (const double* const x = real()) {
    out = *x;
    return true;
  }
  int64_t n = 0;
  if (!as_integer(n)) return false;
  out = static_cast<double>(n);
  return true;
}

bool Value::is_number() const {
  double x = 0;
  return as_number(x);
}

bool Value::truth() const {
  double x = 0;
  if (as_number(x)) return x != 0;
  if (const Text* const t = text()) return !t->empty();
  if (const List* const l = list()) return !l->empty();
  if (const Dict* const d = dict()) return !d->empty();
  return !is_undefined() && !is_none();
}

const char* Value::kind() const {
  if (is_undefined()) return "something undefined";
  if (is_none()) return "none";
  if (boolean() != nullptr) return "a boolean";
  if (is_number()) return "a number";
  if (text() != nullptr) return "a string";
  if (list() != nullptr) return "a list";
  if (dict() != nullptr) return "a mapping";
  if (space() != nullptr) return "a namespace";
  if (loop() != nullptr) return "a loop";
  return "a function";
}

Status take_list(size_t n, Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue));
  return meter.take(n, sizeof(Value));
}

Status take_dict(const Dict& items, Meter& meter) {
  BLEND_RETURN_IF_ERROR(meter.take(Meter::kValue));
  for (const auto& [name, value] : items) {
    BLEND_RETURN_IF_ERROR(meter.take(2 * sizeof(Value)));
    BLEND_RETURN_IF_ERROR(meter.take_search(items.size(), name_bytes(name)));
  }
  return Status::ok();
}

}  // namespace blend::chat
