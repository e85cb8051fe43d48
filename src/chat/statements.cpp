// Names and statements.
#include <algorithm>

#include "chat/print.h"
#include "chat/renderer.h"

namespace blend::chat {

Result<Text> Renderer::run(const Body& body) {
  TextBuilder out(meter_);
  BLEND_ASSIGN([[maybe_unused]] const Flow flow, run_body(body, out));
  return out.take();
}

Result<const Value*> Renderer::look_up(const std::string& name) {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const Names& names = scopes_[i].names;
    BLEND_RETURN_IF_ERROR(meter_.take_search(names.size(), name.size()));
    const auto found = names.find(name);
    if (found != names.end()) return &found->second;
    if (scopes_[i].closed) i = std::min<size_t>(i, kOutermost);
  }
  BLEND_RETURN_IF_ERROR(meter_.take_search(variables_.size(), name.size()));
  const auto found = variables_.find(name);
  const Value* const none = nullptr;
  return found == variables_.end() ? none : &found->second;
}

Status Renderer::put(Names& names, const std::string& name, Value value) {
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + name.size()));
  BLEND_RETURN_IF_ERROR(meter_.take_search(names.size(), name.size()));
  names.insert_or_assign(name, std::move(value));
  return Status::ok();
}

Status Renderer::assign(const Target& target, Value value) {
  if (!target.member.empty()) {
    BLEND_ASSIGN(const Value* const space, look_up(target.names[0]));
    if (space == nullptr || space->space() == nullptr) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "'%s' is not a namespace: only members of namespaces can be assigned to",
                        target.names[0].c_str());
    }
    return put(space->space()->members, target.member, std::move(value));
  }
  if (!target.tuple) return put(scopes_.back().names, target.names[0], std::move(value));
  BLEND_ASSIGN(const Value all, listed(value, meter_));
  const List& items = *all.list();
  if (items.size() != target.names.size()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "%zu values for %zu names", items.size(),
                      target.names.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    BLEND_RETURN_IF_ERROR(put(scopes_.back().names, target.names[i], items[i]));
  }
  return Status::ok();
}

Result<Flow> Renderer::run_body(const Body& body, TextBuilder& out) {
  const Meter::Depth depth(meter_);
  BLEND_RETURN_IF_ERROR(depth.check());
  for (const auto& statement : body) {
    BLEND_RETURN_IF_ERROR(meter_.take(kStep));
    Result<Flow> flow = run(*statement, out);
    if (!flow.is_ok()) return located(flow.status(), statement->line);
    if (*flow != Flow::next) return flow;
  }
  return Flow::next;
}

Result<Flow> Renderer::run_scoped(const Body& body, TextBuilder& out) {
  scopes_.emplace_back();
  Result<Flow> flow = run_body(body, out);
  scopes_.pop_back();
  return flow;
}

Status Renderer::located(Status status, size_t line) {
  if (status.code() == BLEND_E_CANCELLED || status.message().starts_with("line ")) return status;
  return status.with_context("line " + std::to_string(line) + " of the chat template");
}

Result<Flow> Renderer::run(const Statement& s, TextBuilder& out) {
  switch (s.kind) {
    case Statement::Kind::data:
      return after(out.append(s.data, kTemplate));
    case Statement::Kind::write:
      return after(write(s, out));
    case Statement::Kind::condition:
      return run_condition(s, out);
    case Statement::Kind::loop:
      return run_loop(s, out);
    case Statement::Kind::set:
      return after(set(s));
    case Statement::Kind::set_block:
    case Statement::Kind::filter_block:
      return run_block(s, out);
    case Statement::Kind::macro:
      return after(define(s.macro));
    case Statement::Kind::break_loop:
      return Flow::break_loop;
    case Statement::Kind::continue_loop:
      return Flow::continue_loop;
    case Statement::Kind::body:
      return run_scoped(s.body, out);
  }
  return Flow::next;
}

Result<Flow> Renderer::after(Status status) {
  return status.is_ok() ? Result<Flow>(Flow::next) : Result<Flow>(std::move(status));
}

Status Renderer::write(const Statement& s, TextBuilder& out) {
  BLEND_ASSIGN(const Value value, evaluate(*s.value));
  return append_text(value, out);
}

Status Renderer::set(const Statement& s) {
  BLEND_ASSIGN(Value value, evaluate(*s.value));
  return assign(s.target, std::move(value));
}

Result<Flow> Renderer::run_condition(const Statement& s, TextBuilder& out) {
  for (const auto& [when, body] : s.branches) {
    BLEND_ASSIGN(const bool holds, is_true(*when));
    if (holds) return run_body(body, out);
  }
  return run_body(s.otherwise, out);
}

Result<bool> Renderer::is_true(const Expression& e) {
  BLEND_ASSIGN(const Value value, evaluate(e));
  return value.truth();
}

Result<Flow> Renderer::run_block(const Statement& s, TextBuilder& out) {
  Value value;
  scopes_.emplace_back();
  Result<Flow> flow = fill_block(s, value);
  scopes_.pop_back();
  if (!flow.is_ok() || *flow != Flow::next) return flow;
  if (s.kind == Statement::Kind::set_block) return after(assign(s.target, std::move(value)));
  return after(append_text(value, out));
}

Result<Flow> Renderer::fill_block(const Statement& s, Value& value) {
  TextBuilder inside(meter_);
  BLEND_ASSIGN(const Flow flow, run_body(s.body, inside));
  if (flow != Flow::next) return flow;
  BLEND_ASSIGN(value, inside.value());
  if (s.value == nullptr) return flow;
  BLEND_ASSIGN(value, evaluate(*s.value, std::move(value)));
  return flow;
}

Status Renderer::define(const Macro& macro) {
  // Such a macro's body would see the names around its definition, wherever it is called.
  if (scopes_.size() > kOutermost) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "macro '%.60s' inside a loop or another macro, which libblend does not "
                      "support; give another template",
                      macro.name.c_str());
  }
  Callable callable;
  callable.name = macro.name;
  callable.macro = &macro;
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + macro.name.size()));
  return put(scopes_.back().names, macro.name, Value::of(std::move(callable)));
}

}  // namespace blend::chat
