#include "grammar/endless.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>

namespace blend::grammar {
namespace {

// A schema has an end where what it needs has one: all of its needs (the required members of an
// object), or one of them (alternatives). Nodes are schemas and groups of their needs; what has an
// end is found from those that need nothing.
class Ends {
 public:
  explicit Ends(const Json& root);
  bool find_endless(std::vector<std::string>& path) const;

 private:
  struct Node {
    std::vector<size_t> needs, needed_by;
    size_t missing = 0;  // this many more of its needs, and it has an end
  };
  struct Definition {
    std::vector<std::string> path;
    const Json* schema;
  };

  // Definitions that the whole refers to, by others or itself, wherever the references stand.
  std::vector<bool> used() const;
  void define(const std::string& uri, std::vector<std::string> path, const Json& schema);
  // Adds what the node needs, and how many of its needs it cannot do without.
  void fill(size_t node, const Json& schema);
  size_t add() {
    nodes_.emplace_back();
    return nodes_.size() - 1;
  }
  void need(size_t node, size_t other) {
    nodes_[node].needs.push_back(other);
    nodes_[other].needed_by.push_back(node);
  }
  size_t add(const Json& schema) {
    const size_t node = add();
    fill(node, schema);
    return node;
  }
  void need_all(size_t node) { nodes_[node].missing = nodes_[node].needs.size(); }
  void need_one(size_t node) { nodes_[node].missing = nodes_[node].needs.empty() ? 0 : 1; }
  void object(size_t node, const Json& schema);
  void array(size_t node, const Json& schema);

  std::vector<Node> nodes_;
  std::vector<Definition> definitions_;              // their nodes are the first
  std::map<std::string, size_t, std::less<>> uris_;  // of definitions
};

void Ends::define(const std::string& uri, std::vector<std::string> path, const Json& schema) {
  uris_.emplace(uri, definitions_.size());
  definitions_.push_back({std::move(path), &schema});
}

Ends::Ends(const Json& root) {
  define("#", {}, root);
  for (const char* const defs : {"$defs", "definitions"}) {
    const Json* const all = root.find(defs);
    if (all == nullptr || all->object() == nullptr) continue;
    for (const auto& [name, schema] : *all->object()) {
      define(std::string("#/") + defs + '/' + name, {defs, name}, schema);
    }
  }
  nodes_.resize(definitions_.size());
  for (size_t i = 0; i < definitions_.size(); ++i) fill(i, *definitions_[i].schema);

  std::vector<size_t> ended;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].missing == 0) ended.push_back(i);
  }
  while (!ended.empty()) {
    const size_t i = ended.back();
    ended.pop_back();
    for (const size_t by : nodes_[i].needed_by) {
      if (nodes_[by].missing > 0 && --nodes_[by].missing == 0) ended.push_back(by);
    }
  }
}

void Ends::fill(size_t node, const Json& schema) {
  if (const Json* const reference = schema.find("$ref")) {
    const auto found =
        reference->string() != nullptr ? uris_.find(*reference->string()) : uris_.end();
    if (found != uris_.end()) need(node, found->second);
    return need_all(node);
  }
  for (const char* const keyword : {"anyOf", "oneOf", "allOf"}) {
    const Json* const list = schema.find(keyword);
    if (list == nullptr || list->array() == nullptr) continue;
    for (const Json& of : *list->array()) need(node, add(of));
    return keyword == std::string_view("allOf") ? need_all(node) : need_one(node);
  }
  if (schema.find("const") != nullptr || schema.find("enum") != nullptr) return;
  // A type that keywords imply is the type of all of them.
  const auto is = [&](std::string_view name, std::initializer_list<const char*> keywords) {
    const Json* const type = schema.find("type");
    if (type != nullptr) return type->string() != nullptr && *type->string() == name;
    return std::any_of(keywords.begin(), keywords.end(),
                       [&](const char* keyword) { return schema.find(keyword) != nullptr; });
  };
  // Several types are alternatives. All but these two have ends.
  const Json* const types = schema.find("type");
  if (types != nullptr && types->array() != nullptr) {
    for (const Json& type : *types->array()) {
      const std::string* const name = type.string();
      const size_t of_type = add();
      need(node, of_type);
      if (name != nullptr && *name == "object") object(of_type, schema);
      if (name != nullptr && *name == "array") array(of_type, schema);
    }
    return need_one(node);
  }
  if (is("object", {"required", "minProperties"})) return object(node, schema);
  if (is("array", {"minItems", "prefixItems"})) return array(node, schema);
}

void Ends::object(size_t node, const Json& schema) {
  const Json* further = schema.find("additionalProperties");
  if (further == nullptr) further = schema.find("unevaluatedProperties");
  std::map<std::string_view, size_t> members;  // nodes of those that have a name
  if (const Json* const named = schema.find("properties");
      named != nullptr && named->object() != nullptr) {
    for (const auto& [name, value] : *named->object()) members.emplace(name, add(value));
  }
  if (const Json* const required = schema.find("required");
      required != nullptr && required->array() != nullptr) {
    for (const Json& name : *required->array()) {
      if (name.string() == nullptr) continue;
      auto found = members.find(*name.string());
      if (found == members.end()) {
        found = members.emplace(*name.string(), further != nullptr ? add(*further) : add()).first;
      }
      need(node, found->second);
    }
  }
  int64_t least = 0;
  const Json* const given = schema.find("minProperties");
  if (given != nullptr && given->integer(least) && least > 0) {
    const size_t enough = add();
    for (const auto& [name, member] : members) need(enough, member);
    const Json* const patterns = schema.find("patternProperties");
    if (patterns != nullptr && patterns->object() != nullptr) {
      for (const auto& member : *patterns->object()) need(enough, add(member.second));
    }
    if (further != nullptr) need(enough, add(*further));
    nodes_[enough].missing = std::min(static_cast<size_t>(least), nodes_[enough].needs.size());
    need(node, enough);
  }
  need_all(node);
}

void Ends::array(size_t node, const Json& schema) {
  const Json* const prefix = schema.find("prefixItems");
  size_t n_prefix = 0;
  if (prefix != nullptr && prefix->array() != nullptr) {
    n_prefix = prefix->array()->size();
    for (const Json& item : *prefix->array()) need(node, add(item));  // all of them are written
  }
  int64_t least = 0;
  const Json* const given = schema.find("minItems");
  if (given != nullptr) given->integer(least);
  const Json* rest = schema.find("items");
  if (rest == nullptr) rest = schema.find("unevaluatedItems");
  if (rest != nullptr && least > static_cast<int64_t>(n_prefix)) need(node, add(*rest));
  need_all(node);
}

std::vector<bool> Ends::used() const {
  std::vector<bool> used(definitions_.size());
  std::vector<size_t> later;  // of these what they refer to is not known yet
  const auto use = [&](size_t i) {
    if (used[i]) return;
    used[i] = true;
    later.push_back(i);
  };
  use(0);
  while (!later.empty()) {
    std::vector<const Json*> parts = {definitions_[later.back()].schema};
    const bool is_whole = later.back() == 0;
    later.pop_back();
    while (!parts.empty()) {
      const Json& part = *parts.back();
      parts.pop_back();
      if (const Json::Array* const items = part.array()) {
        for (const Json& item : *items) parts.push_back(&item);
      }
      if (part.object() == nullptr) continue;
      for (const auto& [name, value] : *part.object()) {
        const bool defines = name == "$defs" || name == "definitions";
        if (defines && is_whole && &part == definitions_[0].schema) continue;
        if (const auto found =
                value.string() != nullptr ? uris_.find(*value.string()) : uris_.end();
            name == "$ref" && found != uris_.end()) {
          use(found->second);
        }
        parts.push_back(&value);
      }
    }
  }
  return used;
}

// An endless schema needs another one, so the walk comes back to a definition.
bool Ends::find_endless(std::vector<std::string>& path) const {
  const std::vector<bool> used = this->used();
  const auto is_endless = [&](size_t i) { return nodes_[i].missing > 0; };
  size_t at = 0;
  while (at < definitions_.size() && !(used[at] && is_endless(at))) ++at;
  if (at == definitions_.size()) return false;
  std::vector<bool> met(nodes_.size());
  while (at >= definitions_.size() || !met[at]) {
    met[at] = true;
    const std::vector<size_t>& needs = nodes_[at].needs;
    at = *std::find_if(needs.begin(), needs.end(), is_endless);
  }
  path = definitions_[at].path;
  return true;
}

}  // namespace

bool find_endless(const Json& root, std::vector<std::string>& path) {
  return Ends(root).find_endless(path);
}

}  // namespace blend::grammar
