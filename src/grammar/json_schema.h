// JSON schemas: what is kept of a schema, told before it is compiled.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace blend::grammar {

// xgrammar passes over what it does not know, and over keywords beside others: a text would be
// generated that the schema refuses. So every keyword is either kept, or without effect on what is
// valid and left out, or refused by name. Gives the schema of JSON Schema 2020-12 that is compiled:
//   - Of an object and an array without further words on it, only the members and items that the
//     schema has are generated ("strict").
//   - Where no `type` stands, keywords of one type imply it.
// INVALID_ARGUMENT: no JSON, no schema, or nothing satisfies it. UNSUPPORTED names the
// keyword and where it stands.
// `fits`: whether a pattern matches strings that stand in JSON as they are, without escapes.
using PatternFits = std::function<bool(const std::string& pattern)>;
// `whose`: of a schema that was made of others: where a part of its `$defs` comes from, for errors.
struct SchemaPlace {
  std::string of = "the JSON schema";
  std::string path = "#";
};
using WhoseDefinition = std::function<SchemaPlace(const std::string& name)>;
Result<std::string> kept_json_schema(std::string_view text, const PatternFits& fits,
                                     const WhoseDefinition& whose = {});

}  // namespace blend::grammar
