#include "grammar/json_schema.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/json.h"
#include "base/json_text.h"
#include "grammar/endless.h"
#include "model/utf8.h"

namespace blend::grammar {
namespace {

using Names = std::span<const std::string_view>;

bool among(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Without effect on what is valid.
constexpr std::string_view kNotes[] = {
    "title",        "description", "default",          "examples",
    "example",      "deprecated",  "readOnly",         "writeOnly",
    "$comment",     "$schema",     "contentMediaType", "contentEncoding",
    "$id",          "id",          "contentSchema",    "discriminator",
    "externalDocs", "$vocabulary"};

constexpr std::string_view kObject[] = {
    "properties",        "required",      "additionalProperties", "unevaluatedProperties",
    "patternProperties", "propertyNames", "minProperties",        "maxProperties"};
constexpr std::string_view kArray[] = {"items",    "prefixItems", "unevaluatedItems",
                                       "minItems", "maxItems",    "uniqueItems"};
constexpr std::string_view kString[] = {"minLength", "maxLength", "pattern", "format"};
constexpr std::string_view kNumber[] = {"minimum", "maximum", "exclusiveMinimum",
                                        "exclusiveMaximum", "multipleOf"};

struct Type {
  std::string_view name;
  Names keywords;  // that say more of it
};
constexpr Type kTypes[] = {{"object", kObject}, {"array", kArray},    {"string", kString},
                           {"number", kNumber}, {"integer", kNumber}, {"boolean", {}},
                           {"null", {}}};

const Type* type_named(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const Type& t) { return t.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

// Each says all that the schema is; at most `type` may stand beside one, and only beside values.
constexpr std::string_view kForms[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

bool is_of(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.boolean() != nullptr;
  if (type == "string") return value.string() != nullptr;
  if (type == "array") return value.array() != nullptr;
  if (type == "object") return value.object() != nullptr;
  int64_t i = 0;
  double d = 0;
  return type == "integer" ? value.integer(i) : value.number(d);
}

// For a message.
std::string begin_of(std::string_view text, size_t most) {
  return std::string(utf8_begin(text, most));
}

// Members of an object of schemas, by reference: nothing here copies a tree, of any size, and
// copies of std::variant with elements of its own kind have crashed where memory ran out (GCC 12).
using Schemas = std::vector<std::pair<std::string_view, const Json*>>;

Schemas members_of(const Json::Object& object) {
  Schemas members;
  for (const auto& [name, value] : object) members.emplace_back(name, &value);
  return members;
}

// Escapes make a text at most four times as long or so; the schemas that are written once more for
// required members have no such bound.
constexpr size_t kMostKept = size_t{2} << 20;

// Writes a schema as it is kept. Used once.
class Kept {
 public:
  Kept(const Json& root, const PatternFits& fits, const WhoseDefinition& whose)
      : root_(root), fits_(fits), whose_(whose) {}
  Status schema(const Json& schema);
  // INVALID_ARGUMENT: every value contains another one of the same schema.
  Status ends();
  std::string out;

 private:
  // An error at this place of the schema.
  template <typename... Args>
  Status wrong(int32_t code, const char* format, Args... args) const {
    const std::string where = place();
    if constexpr (sizeof...(args) == 0) {
      return make_error(code, "%s", format).with_context(where);
    } else {
      return make_error(code, format, args...).with_context(where);
    }
  }
  Status unsupported(const std::string& keyword, const char* instead) const {
    return wrong(BLEND_E_UNSUPPORTED, "'%s' cannot be kept: %s", begin_of(keyword, 80).c_str(),
                 instead);
  }
  std::string place() const;

  void name(std::string_view name) {
    if (out.back() != '{') out += ',';
    write_json_string(name, out);
    out += ':';
  }
  // A schema one step down, and an object of schemas.
  Status below(const std::string& step, const Json& schema) {
    path_.push_back(step);
    Status status = this->schema(schema);
    path_.pop_back();
    return status;
  }
  Status all_below(const std::string& step, const Schemas& schemas) {
    path_.push_back(step);
    Status status = this->schemas(schemas);
    path_.pop_back();
    return status;
  }
  Status schemas(const Schemas& schemas);
  Status list(const std::string& keyword, const Json& array);  // an array of schemas
  Status value(const std::string& keyword, const Json& value);
  // A number of things, written as it is kept.
  Status count(const std::string& keyword, const Json& given, int64_t& n);
  Status pattern(const std::string& keyword, const std::string& pattern);
  Status form(const std::string& keyword, const Json& schema);
  Status values(const std::vector<const Json*>& values, const Json* type);
  Status reference(const Json& target);
  Status typed(const Json& schema);
  Status named_types(const Json& type, std::vector<const Type*>& types) const;
  Status types_of(const Json& schema, std::vector<const Type*>& types) const;
  Status properties(const Json& schema);
  Status items(const Json& schema);
  Status keyword_of_type(const std::string& keyword, const Json& schema, const Json& value);

  const Json& root_;
  const PatternFits& fits_;
  const WhoseDefinition& whose_;
  const Json any_{true};  // the schema of any value
  std::vector<std::string> path_;
};

std::string Kept::place() const {
  SchemaPlace place;
  size_t i = 0;
  if (whose_ && path_.size() > 1 && path_[0] == "$defs") {
    place = whose_(path_[1]);
    i = 2;
  }
  for (; i < path_.size(); ++i) {
    place.path += '/' + begin_of(path_[i], 80);
    if (place.path.size() <= 300) continue;
    place.path += "...";
    break;
  }
  return place.of + " at " + place.path;
}

Status Kept::ends() {
  if (!find_endless(root_, path_)) return Status::ok();
  return wrong(BLEND_E_INVALID_ARGUMENT,
               "nothing satisfies it: by its references it needs itself, without end");
}

Status Kept::value(const std::string& keyword, const Json& value) {
  if (write_json(value, out)) return Status::ok();
  return unsupported(keyword, "a number there is beyond 64 bits");
}

// xgrammar writes a pattern as it is into JSON if it has more than ASCII, or needs what JSON
// escapes.
Status Kept::pattern(const std::string& keyword, const std::string& pattern) {
  std::string ascii;
  for (size_t at = 0; at < pattern.size();) {
    const std::string_view rest = std::string_view(pattern).substr(at);
    const size_t n = utf8_length(rest);
    const auto lead = static_cast<uint8_t>(rest[0]);
    if (n == 1) {
      ascii += rest[0];
    } else {
      uint32_t code = lead & (0xffu >> (n + 1));
      for (size_t i = 1; i < n; ++i) code = code << 6 | (static_cast<uint8_t>(rest[i]) & 0x3fu);
      char escape[16];
      std::snprintf(escape, sizeof escape, "\\u{%x}", static_cast<unsigned>(code));
      ascii += escape;
    }
    at += n;
  }
  if (!fits_(ascii)) {
    return unsupported(keyword,
                       "xgrammar does not know this regular expression, or it needs quotes, "
                       "backslashes or control characters, which JSON escapes");
  }
  write_json_string(ascii, out);
  return Status::ok();
}

Status Kept::schemas(const Schemas& schemas) {
  out += '{';
  for (const auto& [member, schema] : schemas) {
    name(member);
    BLEND_RETURN_IF_ERROR(below(std::string(member), *schema));
  }
  out += '}';
  return Status::ok();
}

Status Kept::list(const std::string& keyword, const Json& array) {
  if (array.array() == nullptr || array.array()->empty()) {
    return wrong(BLEND_E_INVALID_ARGUMENT, "'%s' must be a list of schemas", keyword.c_str());
  }
  out += '[';
  for (size_t i = 0; i < array.array()->size(); ++i) {
    if (i > 0) out += ',';
    BLEND_RETURN_IF_ERROR(below(keyword + "/" + std::to_string(i), (*array.array())[i]));
  }
  out += ']';
  return Status::ok();
}

Status Kept::schema(const Json& schema) {
  if (out.size() > kMostKept) {
    return wrong(BLEND_E_UNSUPPORTED,
                 "with the schemas of required members it has more than %zu MiB: give each of them "
                 "its own in 'properties'",
                 kMostKept >> 20);
  }
  if (const bool* const any = schema.boolean()) {
    if (!*any) return wrong(BLEND_E_UNSUPPORTED, "'false' allows nothing: leave it out");
    out += "{}";
    return Status::ok();
  }
  if (schema.object() == nullptr) {
    return wrong(BLEND_E_INVALID_ARGUMENT, "it must be an object or true, not %s", schema.kind());
  }
  out += '{';
  std::string form_found;
  for (const auto& [keyword, value] : *schema.object()) {
    if (among(keyword, kForms)) {
      if (!form_found.empty())
        return unsupported(keyword, ("it stands beside '" + form_found + "'").c_str());
      form_found = keyword;
    } else if (keyword == "$defs" || keyword == "definitions") {
      if (value.object() == nullptr) {
        return wrong(BLEND_E_INVALID_ARGUMENT, "'%s' must be an object", keyword.c_str());
      }
      name(keyword);
      BLEND_RETURN_IF_ERROR(all_below(keyword, members_of(*value.object())));
    }
  }
  BLEND_RETURN_IF_ERROR(form_found.empty() ? typed(schema) : form(form_found, schema));
  out += '}';
  return Status::ok();
}

Status Kept::form(const std::string& keyword, const Json& schema) {
  const bool of_values = keyword == "const" || keyword == "enum";
  for (const auto& [beside, value] : *schema.object()) {
    if (beside == keyword || beside == "$defs" || beside == "definitions") continue;
    if (among(beside, kNotes) || beside.starts_with("x-")) continue;
    if (beside == "type" && of_values) continue;
    return unsupported(beside, ("it stands beside '" + keyword + "'").c_str());
  }
  const Json& given = *schema.find(keyword);
  const Json* const type = schema.find("type");
  if (keyword == "$ref") return reference(given);
  if (keyword == "const") return values({&given}, type);
  if (keyword == "enum") {
    if (given.array() == nullptr) {
      return wrong(BLEND_E_INVALID_ARGUMENT, "'enum' must be a list");
    }
    std::vector<const Json*> all;
    for (const Json& value : *given.array()) all.push_back(&value);
    return values(all, type);
  }
  if (keyword == "allOf" && given.array() != nullptr && given.array()->size() > 1) {
    return unsupported(keyword, "it has more than one schema: write what they say as one");
  }
  name(keyword);
  return list(keyword, given);
}

Status Kept::reference(const Json& target) {
  const std::string* const uri = target.string();
  if (uri == nullptr) return wrong(BLEND_E_INVALID_ARGUMENT, "'$ref' must be a string");
  for (const char* const defs : {"$defs", "definitions"}) {
    const std::string folder = std::string("#/") + defs + "/";
    if (!uri->starts_with(folder)) continue;
    const std::string to = uri->substr(folder.size());
    if (to.find_first_of("/~%") != std::string::npos) break;
    const Json* const all = root_.find(defs);
    if (all == nullptr || all->find(to) == nullptr) {
      const std::string named =
          whose_ && folder == "#/$defs/" ? whose_(to).path : begin_of(*uri, 200);
      return wrong(BLEND_E_INVALID_ARGUMENT, "'$ref' names %s, which is not there", named.c_str());
    }
    name("$ref");
    write_json_string(*uri, out);
    return Status::ok();
  }
  if (*uri != "#") {
    return unsupported("$ref", "only '#', '#/$defs/NAME' and '#/definitions/NAME' are followed");
  }
  name("$ref");
  out += "\"#\"";
  return Status::ok();
}

Status Kept::values(const std::vector<const Json*>& values, const Json* type) {
  std::vector<const Type*> types;
  if (type != nullptr) BLEND_RETURN_IF_ERROR(named_types(*type, types));
  name("enum");
  out += '[';
  size_t n = 0;
  for (const Json* const value : values) {
    const bool allowed = types.empty() || std::any_of(types.begin(), types.end(), [&](auto* t) {
                           return is_of(*value, t->name);
                         });
    if (!allowed) continue;
    if (n++ > 0) out += ',';
    BLEND_RETURN_IF_ERROR(this->value("enum", *value));
  }
  out += ']';
  if (n > 0) return Status::ok();
  return wrong(BLEND_E_INVALID_ARGUMENT, "no value is allowed");
}

Status Kept::named_types(const Json& type, std::vector<const Type*>& types) const {
  const auto add = [&](const Json& named) {
    const Type* const found = named.string() != nullptr ? type_named(*named.string()) : nullptr;
    if (found != nullptr) types.push_back(found);
    return found != nullptr;
  };
  const Json::Array* const list = type.array();
  const bool known = list != nullptr ? std::all_of(list->begin(), list->end(), add) : add(type);
  if (!known) {
    return wrong(BLEND_E_INVALID_ARGUMENT,
                 "'type' must be object, array, string, number, integer, boolean or null, or a "
                 "list of them");
  }
  if (!types.empty()) return Status::ok();
  return wrong(BLEND_E_INVALID_ARGUMENT, "'type' is empty");
}

// Those of `type`, or that the keywords imply; none: any value.
Status Kept::types_of(const Json& schema, std::vector<const Type*>& types) const {
  if (const Json* const given = schema.find("type")) return named_types(*given, types);
  for (const auto& [keyword, value] : *schema.object()) {
    for (const Type& type : kTypes) {
      if (!among(keyword, type.keywords)) continue;
      if (!types.empty() && types.front() != &type) {
        return wrong(BLEND_E_UNSUPPORTED,
                     "'%s' is for values of another type than a keyword before it: give a 'type'",
                     keyword.c_str());
      }
      types.assign(1, &type);
      break;  // integer has the keywords of number
    }
  }
  return Status::ok();
}

Status Kept::typed(const Json& schema) {
  std::vector<const Type*> types;
  BLEND_RETURN_IF_ERROR(types_of(schema, types));
  if (types.size() == 1) {
    name("type");
    write_json_string(types.front()->name, out);
  } else if (!types.empty()) {
    name("type");
    out += '[';
    for (size_t i = 0; i < types.size(); ++i) {
      if (i > 0) out += ',';
      write_json_string(types[i]->name, out);
    }
    out += ']';
  }
  for (const auto& member : *schema.object()) {  // a lambda cannot take names of its parts
    const auto& keyword = member.first;
    const auto& value = member.second;
    if (keyword == "type" || keyword == "$defs" || keyword == "definitions") continue;
    if (among(keyword, kNotes) || keyword.starts_with("x-")) continue;
    const bool of_some = std::any_of(std::begin(kTypes), std::end(kTypes),
                                     [&](const Type& t) { return among(keyword, t.keywords); });
    if (!of_some) return unsupported(keyword, "no keyword that is known here");
    const bool of_these = std::any_of(types.begin(), types.end(),
                                      [&](const Type* t) { return among(keyword, t->keywords); });
    if (!of_these) continue;  // it says nothing of values of these types
    BLEND_RETURN_IF_ERROR(keyword_of_type(keyword, schema, value));
  }
  const auto has = [&](std::string_view type) {
    return std::any_of(types.begin(), types.end(), [&](auto* t) { return t->name == type; });
  };
  if (has("object")) BLEND_RETURN_IF_ERROR(properties(schema));
  if (has("array")) BLEND_RETURN_IF_ERROR(items(schema));
  return Status::ok();
}

Status Kept::keyword_of_type(const std::string& keyword, const Json& schema, const Json& value) {
  if (among(keyword, kObject) || among(keyword, kArray)) return Status::ok();  // below, together
  if (keyword == "pattern" || keyword == "format") {
    if (value.string() == nullptr) {
      return wrong(BLEND_E_INVALID_ARGUMENT, "'%s' must be a string", keyword.c_str());
    }
    if (keyword == "format" && schema.find("pattern") != nullptr) {
      return unsupported(keyword, "it stands beside 'pattern'");
    }
    if (keyword == "pattern") {
      name(keyword);
      return pattern(keyword, *value.string());
    }
  } else if (keyword == "minLength" || keyword == "maxLength") {
    int64_t n = 0;
    return count(keyword, value, n);
  } else {
    double n = 0;
    if (!value.number(n)) {
      return wrong(BLEND_E_INVALID_ARGUMENT, "'%s' must be a number", keyword.c_str());
    }
  }
  name(keyword);
  return this->value(keyword, value);
}

Status Kept::count(const std::string& keyword, const Json& given, int64_t& n) {
  // More than xgrammar can count is as good as no bound.
  if (!given.integer(n) || n < 0) {
    return wrong(BLEND_E_INVALID_ARGUMENT, "'%s' must be a whole number of at least 0",
                 keyword.c_str());
  }
  if (keyword.ends_with("Properties") && n > INT32_MAX) {
    return wrong(BLEND_E_UNSUPPORTED, "'%s' may be %d at most", keyword.c_str(), INT32_MAX);
  }
  name(keyword);
  out += std::to_string(n);
  return Status::ok();
}

Status Kept::properties(const Json& schema) {
  const Json* const named = schema.find("properties");
  const Json* const patterns = schema.find("patternProperties");
  const Json* const names = schema.find("propertyNames");
  const Json* const required = schema.find("required");
  const Json* further = schema.find("additionalProperties");
  if (further == nullptr) further = schema.find("unevaluatedProperties");
  const bool closed = further != nullptr && further->boolean() != nullptr && !*further->boolean();

  int64_t least = 0;
  for (const char* const keyword : {"minProperties", "maxProperties"}) {
    const Json* const given = schema.find(keyword);
    if (given == nullptr) continue;
    int64_t n = 0;
    BLEND_RETURN_IF_ERROR(count(keyword, *given, n));
    if (keyword == std::string_view("minProperties")) least = n;
  }
  std::vector<std::string> unnamed;  // required, but no property
  if (required != nullptr) {
    if (required->array() == nullptr) {
      return wrong(BLEND_E_INVALID_ARGUMENT, "'required' must be a list of names");
    }
    std::set<std::string_view> has;
    if (named != nullptr && named->object() != nullptr) {
      for (const auto& member : *named->object()) has.insert(member.first);
    }
    for (const Json& r : *required->array()) {
      if (r.string() == nullptr) {
        return wrong(BLEND_E_INVALID_ARGUMENT, "'required' must be a list of names");
      }
      if (has.insert(*r.string()).second) unnamed.push_back(*r.string());
    }
    name("required");
    BLEND_RETURN_IF_ERROR(value("required", *required));
  }
  if (!unnamed.empty() && (closed || patterns != nullptr || names != nullptr)) {
    return wrong(BLEND_E_UNSUPPORTED, "'%s' is required, but 'properties' does not have it",
                 begin_of(unnamed.front(), 80).c_str());
  }
  if (patterns != nullptr) {
    if (named != nullptr || names != nullptr || (further != nullptr && !closed)) {
      return unsupported("patternProperties", "it stands beside other properties");
    }
    if (patterns->object() == nullptr || patterns->object()->size() != 1) {
      return unsupported("patternProperties", "it must have one pattern");
    }
    const auto& [of_names, of_values] = patterns->object()->front();
    name("patternProperties");
    out += '{';
    BLEND_RETURN_IF_ERROR(pattern("patternProperties", of_names));
    out += ':';
    BLEND_RETURN_IF_ERROR(below("patternProperties/" + of_names, of_values));
    out += '}';
  }
  if (names != nullptr) {
    if (named != nullptr) return unsupported("propertyNames", "it stands beside 'properties'");
    name("propertyNames");
    BLEND_RETURN_IF_ERROR(below("propertyNames", *names));
  }
  // A required member that has no schema of its own has that of further ones.
  if (named != nullptr || !unnamed.empty()) {
    if (named != nullptr && named->object() == nullptr) {
      return wrong(BLEND_E_INVALID_ARGUMENT, "'properties' must be an object");
    }
    Schemas all = named != nullptr ? members_of(*named->object()) : Schemas();
    for (const std::string& r : unnamed) {
      all.emplace_back(r, further != nullptr ? further : &any_);
    }
    name("properties");
    BLEND_RETURN_IF_ERROR(all_below("properties", all));
  }
  const bool open_by_default =
      further == nullptr && named == nullptr && unnamed.empty() && patterns == nullptr;
  const bool open = open_by_default || (further != nullptr && !closed) || patterns != nullptr;
  if (open && least >= 2) {
    return unsupported("minProperties", "further members may repeat a name");
  }
  name("additionalProperties");
  if (further == nullptr || further->boolean() != nullptr) {
    out += (further == nullptr ? open_by_default : *further->boolean()) ? "true" : "false";
    return Status::ok();
  }
  return below("additionalProperties", *further);
}

Status Kept::items(const Json& schema) {
  const Json* const prefix = schema.find("prefixItems");
  const Json* rest = schema.find("items");
  if (rest == nullptr) rest = schema.find("unevaluatedItems");
  for (const char* const keyword : {"minItems", "maxItems"}) {
    const Json* const given = schema.find(keyword);
    if (given == nullptr) continue;
    int64_t n = 0;
    BLEND_RETURN_IF_ERROR(count(keyword, *given, n));
  }
  if (const Json* const unique = schema.find("uniqueItems")) {
    if (unique->boolean() == nullptr || *unique->boolean()) {
      return unsupported("uniqueItems", "what was generated before is not compared");
    }
  }
  if (prefix != nullptr) {
    name("prefixItems");
    BLEND_RETURN_IF_ERROR(list("prefixItems", *prefix));
  }
  if (rest != nullptr && rest->array() != nullptr) {
    return unsupported("items", "a list of schemas is 'prefixItems' since 2020-12");
  }
  name("items");
  if (rest == nullptr || rest->boolean() != nullptr) {
    out += (rest == nullptr ? prefix == nullptr : *rest->boolean()) ? "true" : "false";
    return Status::ok();
  }
  return below("items", *rest);
}

}  // namespace

Result<std::string> kept_json_schema(std::string_view text, const PatternFits& fits,
                                     const WhoseDefinition& whose) {
  auto parsed = Json::parse(text);
  if (!parsed.is_ok()) {
    return Status{BLEND_E_INVALID_ARGUMENT, "the JSON schema: " + parsed.status().message()};
  }
  Kept kept(*parsed, fits, whose);
  BLEND_RETURN_IF_ERROR(kept.schema(*parsed));
  BLEND_RETURN_IF_ERROR(kept.ends());
  return std::move(kept.out);
}

}  // namespace blend::grammar
