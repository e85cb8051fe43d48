// Loops, their filters and `loop`.
#include <iterator>

#include "chat/renderer.h"

namespace blend::chat {

Result<std::shared_ptr<Loop>> Renderer::begin_loop(const Statement& s) {
  BLEND_ASSIGN(const Value over, evaluate(*s.value));
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + sizeof(Loop)));
  auto loop = std::make_shared<Loop>();
  BLEND_ASSIGN(loop->items, listed(over, meter_));
  loop->depth = loop->items.depth();
  loop->length = loop->items.list()->size();
  if (s.filter != nullptr) loop->statement = &s;
  loop->scopes = scopes_.size();
  loop->asides = asides_.size();
  return loop;
}

Result<Flow> Renderer::run_loop(const Statement& s, TextBuilder& out) {
  BLEND_ASSIGN(const std::shared_ptr<Loop> loop, begin_loop(s));
  Result<Flow> flow = run_items(s, loop, out);
  loop->ended = true;
  return flow;
}

Result<Flow> Renderer::run_items(const Statement& s, const std::shared_ptr<Loop>& loop,
                                 TextBuilder& out) {
  BLEND_ASSIGN(std::optional<Value> item, take_item(*loop));
  // As in Jinja, `else` runs if no iteration of the loop was completed.
  bool ended = false;
  while (item) {
    loop->now = std::move(*item);
    scopes_.emplace_back();
    Status status = put(scopes_.back().names, "loop", Value::of(loop));
    if (status.is_ok()) status = assign(s.target, loop->now);
    Flow flow = Flow::next;
    if (status.is_ok()) {
      Result<Flow> done = run_body(s.body, out);
      status = done.status();
      if (done.is_ok()) flow = *done;
    }
    scopes_.pop_back();
    BLEND_RETURN_IF_ERROR(status);
    ended = ended || flow == Flow::next;
    if (flow == Flow::break_loop) break;
    BLEND_ASSIGN(item, take_item(*loop));
    if (!item) break;
    loop->before = std::move(loop->now);
    ++loop->index;
  }
  return ended ? Result<Flow>(Flow::next) : run_scoped(s.otherwise, out);
}

Result<std::optional<Value>> Renderer::take_item(Loop& loop) {
  if (loop.after) return std::exchange(loop.after, std::nullopt);
  while (loop.next < loop.items.list()->size()) {
    BLEND_RETURN_IF_ERROR(meter_.take(kStep));
    const Value item = (*loop.items.list())[loop.next++];
    if (loop.statement == nullptr) return std::optional<Value>(item);
    BLEND_ASSIGN(const bool let, passes(loop, item));
    if (let) return std::optional<Value>(item);
  }
  return std::optional<Value>();
}

Result<bool> Renderer::passes(Loop& loop, const Value& item) {
  if (loop.judges) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "a loop's filter asks for the items of its own loop");
  }
  if (loop.ended) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the items of a loop with a filter are used after its end, which "
                      "libblend does not support; give another template");
  }
  for (size_t i = loop.asides; i < asides_.size(); ++i) {
    if (loop.scopes <= asides_[i]) continue;
    return make_error(BLEND_E_UNSUPPORTED,
                      "a loop's filter uses the items of a loop inside it, which libblend "
                      "does not support; give another template");
  }
  const auto first = scopes_.begin() + static_cast<std::ptrdiff_t>(loop.scopes);
  std::vector<Scope> inner(std::make_move_iterator(first), std::make_move_iterator(scopes_.end()));
  scopes_.resize(loop.scopes);
  scopes_.emplace_back();
  Result<bool> out = false;
  loop.judges = true;
  asides_.push_back(loop.scopes);
  if (Status assigned = assign(loop.statement->target, item); assigned.is_ok()) {
    out = is_true(*loop.statement->filter);
  } else {
    out = std::move(assigned);
  }
  asides_.pop_back();
  loop.judges = false;
  scopes_.resize(loop.scopes);
  std::move(inner.begin(), inner.end(), std::back_inserter(scopes_));
  return out;
}

Status Renderer::look_ahead(Loop& loop) {
  if (loop.after) return Status::ok();
  BLEND_ASSIGN(loop.after, take_item(loop));
  return Status::ok();
}

Result<int64_t> Renderer::length_of(Loop& loop) {
  if (loop.statement != nullptr) {
    List rest;
    while (true) {
      BLEND_ASSIGN(std::optional<Value> item, take_item(loop));
      if (!item) break;
      BLEND_RETURN_IF_ERROR(meter_.take(2 * sizeof(Value)));
      rest.push_back(std::move(*item));
    }
    loop.length = loop.index + 1 + rest.size();
    BLEND_ASSIGN(loop.items, Value::list(std::move(rest)));
    loop.next = 0;
    loop.statement = nullptr;
  }
  return static_cast<int64_t>(loop.length);
}

Result<Value> Renderer::loop_member(const Value& value, const std::string& name) {
  Loop& loop = *value.loop();
  const auto i = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::of(i + 1);
  if (name == "index0") return Value::of(i);
  if (name == "first") return Value::of(i == 0);
  // Recursive loops are not supported, so the depth is always that of the outermost loop.
  if (name == "depth") return Value::of(int64_t{1});
  if (name == "depth0") return Value::of(int64_t{0});
  if (name == "previtem") return loop.before ? *loop.before : Value::undefined("loop.previtem");
  if (name == "cycle") return method_of(value, name);
  if (name == "last" || name == "nextitem") {
    BLEND_RETURN_IF_ERROR(look_ahead(loop));
    if (name == "last") return Value::of(!loop.after.has_value());
    return loop.after ? *loop.after : Value::undefined("loop.nextitem");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    BLEND_ASSIGN(const int64_t n, length_of(loop));
    return Value::of(name == "length" ? n : name == "revindex" ? n - i : n - i - 1);
  }
  return make_error(BLEND_E_UNSUPPORTED,
                    "'loop.%.60s', which libblend does not support; give another template",
                    name.c_str());
}

}  // namespace blend::chat
