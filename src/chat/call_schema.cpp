#include "chat/call_schema.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "chat/tool_list.h"

namespace blend::chat {
namespace {

// Where a schema keeps parts that its references name, and how their names begin in the whole.
struct Place {
  std::string_view name;
  char mark;
};
constexpr Place kPlaces[] = {{"$defs", '.'}, {"definitions", ':'}};

const Place* place_named(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kPlaces), std::end(kPlaces),
                                         [&](const Place& p) { return p.name == name; });
  return found == std::end(kPlaces) ? nullptr : found;
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> of) {
  return std::find(of.begin(), of.end(), name) != of.end();
}

std::string moved_reference(const std::string& to, const std::string& root) {
  for (const Place& place : kPlaces) {
    const std::string begin = "#/" + std::string(place.name) + '/';
    if (to.starts_with(begin)) return "#/$defs/" + root + place.mark + to.substr(begin.size());
  }
  return to == "#" ? "#/$defs/" + root : to;
}

// Takes a schema's references to its own parts to where it stands now. What is data, not a schema,
// is left alone. has_names: its members are not keywords but names of schemas.
void move_references(Json& schema, const std::string& root, bool has_names = false) {
  if (Json::Array* const items = schema.array()) {
    for (Json& item : *items) move_references(item, root);
  }
  if (schema.object() == nullptr) return;
  for (auto& [name, value] : *schema.object()) {
    if (has_names) {
      move_references(value, root);
    } else if (name == "$ref" && value.string() != nullptr) {
      value = Json(moved_reference(*value.string(), root));
    } else if (!is_any_of(name, {"const", "enum", "default", "examples"})) {
      move_references(value, root,
                      is_any_of(name, {"properties", "patternProperties"}) || place_named(name));
    }
  }
}

// What must be an object: parameters, and what stands for them by references and alternatives. Used
// once.
class ArgumentsSchema {
 public:
  explicit ArgumentsSchema(Json& parameters);
  // Gives the type "object" to what has no type. INVALID_ARGUMENT: one can be no object.
  Status become_objects();

 private:
  void reach(Json& schema) {
    if (met_.insert(&schema).second) reached_.push_back(&schema);
  }
  Status end(Json& schema);

  std::map<std::string, Json*, std::less<>> definitions_;  // by what refers to them
  std::set<const Json*> met_;
  std::vector<Json*> reached_;  // no recursion: chains may be long
};

ArgumentsSchema::ArgumentsSchema(Json& parameters) {
  definitions_.emplace("#", &parameters);
  for (auto& [name, value] : *parameters.object()) {
    if (place_named(name) == nullptr || value.object() == nullptr) continue;
    const std::string place = "#/" + name + '/';
    for (auto& [part, schema] : *value.object()) definitions_.emplace(place + part, &schema);
  }
  reach(parameters);
}

Status ArgumentsSchema::end(Json& schema) {
  if (const bool* const any = schema.boolean(); any != nullptr && *any) {
    schema = Json(Json::Object());
  }
  Json::Object* const members = schema.object();
  if (members == nullptr) return Status::ok();  // refused where it is compiled
  Json* const type = schema.find("type");
  if (type == nullptr) {
    members->emplace_back("type", Json(std::string("object")));
    return Status::ok();
  }
  const auto is_object = [](const Json& t) {
    return t.string() != nullptr && *t.string() == "object";
  };
  const Json::Array* const types = type->array();
  if (types != nullptr && std::any_of(types->begin(), types->end(), is_object)) {
    *type = Json(std::string("object"));
  }
  if (is_object(*type)) return Status::ok();
  return {
      BLEND_E_INVALID_ARGUMENT,
      "they must be a schema of the type \"object\", and so must be what they refer to and each "
      "of their alternatives"};
}

Status ArgumentsSchema::become_objects() {
  for (size_t i = 0; i < reached_.size(); ++i) {
    Json& schema = *reached_[i];
    bool leads_on = false;
    if (schema.object() != nullptr) {
      for (auto& [name, value] : *schema.object()) {
        if (name == "$ref" && value.string() != nullptr) {
          const auto found = definitions_.find(*value.string());
          if (found == definitions_.end()) return Status::ok();  // refused where it is compiled
          leads_on = true;
          reach(*found->second);
        } else if (is_any_of(name, {"anyOf", "oneOf", "allOf"}) && value.array() != nullptr) {
          leads_on = true;
          for (Json& alternative : *value.array()) reach(alternative);
        }
      }
    }
    if (!leads_on) BLEND_RETURN_IF_ERROR(end(schema));
  }
  return Status::ok();
}

// Appends a name and the begin of its value to an object that is written.
void begin_member(std::string_view name, std::string& out) {
  if (out.back() != '{') out += ',';
  write_json_string(name, out);
  out += ':';
}

// It cannot fail: the parser gives finite numbers. Large ones stay large: whoever compiles the
// schema says of them what it says of those in any schema.
void write_schema(const Json& value, std::string& out) {
  write_json(value, out, LargeNumbers::nearest);
}

Status check_parameters(const Json& parameters) {
  if (parameters.is_null() || parameters.object() != nullptr) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "they must be an object, a JSON schema, not %s",
                    parameters.kind());
}

// Appends the parameters as the definition `root`, and their parts as definitions beside it.
Status append_definitions(Json parameters, const std::string& root, std::string& out) {
  BLEND_RETURN_IF_ERROR(check_parameters(parameters));
  if (parameters.is_null()) {
    begin_member(root, out);
    out += R"({"type":"object","additionalProperties":false})";
    return Status::ok();
  }
  BLEND_RETURN_IF_ERROR(ArgumentsSchema(parameters).become_objects());
  move_references(parameters, root);
  std::string own = "{";
  for (const auto& [name, value] : *parameters.object()) {
    const Place* const place = place_named(name);
    if (place == nullptr || value.object() == nullptr) {
      begin_member(name, own);
      write_schema(value, own);
      continue;
    }
    const std::string before = root + place->mark;
    for (const auto& [part, schema] : *value.object()) {
      begin_member(before + part, out);
      write_schema(schema, out);
    }
  }
  begin_member(root, out);
  out += own + '}';
  return Status::ok();
}

std::string parameters_of(std::string_view function) {
  return "the parameters of the function '" + shown_name(function) + "'";
}

}  // namespace

Result<std::string> call_schema(std::string_view tools, std::string_view function,
                                std::string_view arguments) {
  BLEND_ASSIGN(std::vector<ListedFunction> functions, listed_functions(tools));
  if (functions.empty()) {
    return Status{BLEND_E_INVALID_ARGUMENT, "the list of tools has no function to call"};
  }
  std::string calls = "[";
  std::string definitions = "{";
  for (size_t i = 0; i < functions.size(); ++i) {
    if (!function.empty() && functions[i].name != function) continue;
    std::string root = "f";
    root += std::to_string(i);
    const Status status = append_definitions(std::move(functions[i].parameters), root, definitions);
    if (!status.is_ok()) return status.with_context(parameters_of(functions[i].name));
    if (calls.back() != '[') calls += ',';
    calls += R"({"type":"object","properties":{"name":{"const":)";
    write_json_string(functions[i].name, calls);
    calls += "},";
    write_json_string(arguments, calls);
    calls += R"(:{"$ref":"#/$defs/)" + root + R"("}},"required":["name",)";
    write_json_string(arguments, calls);
    calls += R"(],"additionalProperties":false})";
  }
  if (calls.back() == '[') {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the function '%s' is not among the tools",
                      shown_name(function).c_str());
  }
  return R"({"anyOf":)" + calls + R"(],"$defs":)" + definitions + "}}";
}

ParametersPlace place_of_definition(std::string_view tools, std::string_view definition) {
  // "f", the function's number; then the mark of a place and the name there, or nothing.
  size_t i = SIZE_MAX;
  const char* const end = definition.data() + definition.size();
  const char* at = definition.empty() ? end : definition.data() + 1;
  at = std::from_chars(at, end, i).ptr;
  auto functions = listed_functions(tools);
  ParametersPlace place{"the functions' parameters", "#"};
  if (functions.is_ok() && i < functions->size()) place.of = parameters_of((*functions)[i].name);
  for (const Place& kept : kPlaces) {
    if (at == end || *at != kept.mark) continue;
    place.path += '/' + std::string(kept.name) + '/' + shown_name({at + 1, end});
  }
  return place;
}

}  // namespace blend::chat
