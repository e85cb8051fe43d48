// Calls of macros, methods and functions.
#include <algorithm>

#include "chat/clock.h"
#include "chat/renderer.h"

namespace blend::chat {
namespace {

constexpr int kMaxCalls = 16;  // of macros that call each other

}  // namespace

Value Renderer::built_in(const std::string& name) {
  for (const char* const known :
       {"raise_exception", "strftime_now", "namespace", "range", "dict"}) {
    if (name != known) continue;
    Callable function;
    function.name = name;
    return Value::of(std::move(function));
  }
  return Value::undefined(name);
}

Result<Value> Renderer::call(const Expression& e, const Value& what) {
  const Callable* const f = what.callable();
  if (f == nullptr) {
    const Expression& callee = *e.parts[0];
    return make_error(BLEND_E_UNSUPPORTED,
                      "the chat template calls '%.60s', which libblend does not support; give "
                      "another template",
                      callee.name.empty() ? what.kind() : callee.name.c_str());
  }
  BLEND_ASSIGN(const CallArguments given, arguments(e.arguments));
  if (f->macro != nullptr) return call_macro(*f->macro, given);
  if (f->self != nullptr && f->self->loop() != nullptr) return cycle(*f->self->loop(), given);
  if (f->self != nullptr) return call_method(f->name, *f->self, given, meter_);
  return call_function(f->name, given);
}

Result<Value> Renderer::call_function(const std::string& name, const CallArguments& given) {
  if (name == "raise_exception") return raise(given);
  if (name == "namespace") return make_namespace(given);
  if (name == "range") return range(given);
  if (name == "dict") return make_dict(given);
  const Value* const format = given.get(0, "format");
  if (format == nullptr || format->text() == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "strftime_now needs a format");
  }
  BLEND_ASSIGN(const std::string text, format_time(format->text()->bytes(), now_));
  BLEND_RETURN_IF_ERROR(meter_.take(8 * Meter::kValue + text.size()));
  const std::vector<Text::Run>& runs = format->text()->runs();
  const bool own = std::all_of(runs.begin(), runs.end(),
                               [](const Text::Run& run) { return run.origin == kTemplate; });
  return Value::text(text, own ? kTemplate : kMessage);
}

Result<Value> Renderer::cycle(const Loop& loop, const CallArguments& given) {
  if (given.positional.empty() || !given.named.empty()) return unknown("method", "cycle");
  return given.positional[loop.index % given.positional.size()];
}

Result<Value> Renderer::make_dict(const CallArguments& given) {
  Dict members;
  if (!given.positional.empty()) {
    const Dict* const of = given.positional[0].dict();
    if (of == nullptr || given.positional.size() > 1) {
      return make_error(BLEND_E_UNSUPPORTED, "dict() of %s, which libblend does not support",
                        given.positional[0].kind());
    }
    BLEND_RETURN_IF_ERROR(take_dict(*of, meter_));
    members = *of;
  }
  for (const auto& [name, value] : given.named) {
    BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + name.size()));
    members.emplace_back(Value::text(name), value);
  }
  BLEND_RETURN_IF_ERROR(take_dict(members, meter_));
  return Value::dict(std::move(members));
}

Status Renderer::raise(const CallArguments& given) {
  std::string message;
  if (const Value* const v = given.get(0, "message"); v != nullptr && v->text() != nullptr) {
    message = v->text()->bytes().substr(0, 400);
  }
  return make_error(BLEND_E_INVALID_ARGUMENT, "the model's chat template refuses: %s",
                    message.c_str());
}

Result<Value> Renderer::make_namespace(const CallArguments& given) {
  if (!given.positional.empty()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "namespace() of a mapping, which libblend does not support");
  }
  BLEND_RETURN_IF_ERROR(meter_.take(Meter::kValue + sizeof(Namespace)));
  owned_spaces_.push_back(std::make_unique<Namespace>());
  Namespace* const space = owned_spaces_.back().get();
  for (const auto& [name, value] : given.named) {
    BLEND_RETURN_IF_ERROR(put(space->members, name, value));
  }
  return Value::of(space);
}

Result<Value> Renderer::range(const CallArguments& given) {
  int64_t n[3] = {0, 0, 1};
  const size_t count = given.positional.size();
  if (count < 1 || count > 3) return make_error(BLEND_E_INVALID_ARGUMENT, "range() of nothing");
  for (size_t i = 0; i < count; ++i) {
    if (!given.positional[i].as_integer(n[count == 1 ? 1 : i])) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "range() of %s", given.positional[i].kind());
    }
  }
  if (n[2] == 0) return make_error(BLEND_E_INVALID_ARGUMENT, "range() in steps of 0");
  List out;
  for (int64_t i = n[0]; n[2] > 0 ? i < n[1] : i > n[1];) {
    BLEND_RETURN_IF_ERROR(meter_.take(2 * sizeof(Value)));
    out.push_back(Value::of(i));
    if (__builtin_add_overflow(i, n[2], &i)) break;
  }
  return Value::list(std::move(out));
}

Result<Value> Renderer::call_macro(const Macro& macro, const CallArguments& given) {
  if (++calls_ > kMaxCalls) {
    return make_error(BLEND_E_UNSUPPORTED, "macros call one another more than %d deep", kMaxCalls);
  }
  scopes_.push_back({{}, true});
  TextBuilder out(meter_);
  Status status = bind_parameters(macro, given);
  if (status.is_ok()) status = run_body(macro.body, out).status();
  scopes_.pop_back();
  --calls_;
  BLEND_RETURN_IF_ERROR(status);
  return out.value();
}

Status Renderer::bind_parameters(const Macro& macro, const CallArguments& given) {
  if (given.positional.size() > macro.parameters.size()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "macro '%s' takes %zu arguments and is given %zu",
                      macro.name.c_str(), macro.parameters.size(), given.positional.size());
  }
  Names named;
  for (const auto& [name, value] : given.named) BLEND_RETURN_IF_ERROR(put(named, name, value));
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, otherwise] = macro.parameters[i];
    Value value = Value::undefined(name);
    if (i < given.positional.size()) {
      value = given.positional[i];
    } else if (const auto found = named.extract(name); !found.empty()) {
      value = found.mapped();
    } else if (otherwise != nullptr) {
      BLEND_ASSIGN(value, evaluate(*otherwise));
    }
    BLEND_RETURN_IF_ERROR(put(scopes_.back().names, name, std::move(value)));
  }
  if (named.empty()) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "macro '%.60s' takes no argument '%.60s' here",
                    macro.name.c_str(), named.begin()->first.c_str());
}

}  // namespace blend::chat
