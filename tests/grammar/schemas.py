"""JSON schemas to generate by: hard ones by hand, and any number of random ones by a seed."""

import random

HARD = [
    {"type": "object"},
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "null"}, "c": {"type": "boolean"}},
     "minProperties": 2, "maxProperties": 2},
    {"type": "object", "required": ["x", "y"], "additionalProperties": {"enum": [1, "two", None]}},
    {"type": "object", "patternProperties": {"^[a-c]{1,3}$": {"type": "integer"}}},
    {"type": "object", "propertyNames": {"pattern": "^k_[0-9]$"}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "properties": {"quote\"d": {"const": "a\"b\\c\nd"}, "é 日": {"const": ["ü", {"k": 1.5}]}},
     "required": ["quote\"d", "é 日"]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 1, "maxItems": 2}, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False},
    {"type": "array", "prefixItems": [{"const": "id"}], "items": {"type": "integer", "minimum": 1, "maximum": 9}, "maxItems": 4},
    {"type": "array", "maxItems": 0},
    {"type": "string", "minLength": 5, "maxLength": 5},
    {"type": "string", "maxLength": 0},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    {"type": "string", "pattern": "^(\"|\\\\|/|[é-ü])*$"},
    {"type": "string", "pattern": "^(a|b)+@(c|d)\\.(com|org)$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "integer"},
    {"type": "integer", "minimum": -5, "maximum": 5},
    {"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 1001},
    {"type": "integer", "minimum": 1000000007},
    {"type": "integer", "maximum": -999999999},
    {"type": "integer", "multipleOf": 7},
    {"type": "number", "minimum": 0.1, "maximum": 0.35},
    {"type": "number", "exclusiveMinimum": -2.5, "exclusiveMaximum": 1000000.75},
    {"type": "number", "minimum": 0},
    {"type": ["string", "null"], "maxLength": 2},
    {"type": ["integer", "array"], "minimum": 3, "items": {"type": "null"}, "maxItems": 2},
    {"enum": ["red", "green", 3, None, {"a": [1, 2]}, ["b"], 1.25, "re\"d"]},
    {"type": "string", "enum": ["yes", "no", 1]},
    {"const": {"deep": [{"er": None}]}},
    {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2},
               {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}]},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "maximum": 9, "minimum": 1}},
                "required": ["kind", "lives"]},
               {"type": "object", "properties": {"kind": {"const": "dog"}, "good": {"const": True}}, "required": ["kind", "good"]}]},
    {"oneOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "null"}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}]},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
        "value": {"type": "integer", "minimum": 0, "maximum": 99},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}, "required": ["value"]}}},
    {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
    {"definitions": {"n": {"type": "number", "minimum": 1, "maximum": 2}}, "type": "array", "items": {"$ref": "#/definitions/n"},
     "minItems": 2, "maxItems": 2},
    {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]}, "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 2}},
     "$ref": "#/$defs/b"},
    {"title": "Answer", "description": "of a model", "type": "object", "x-note": 1, "properties": {
        "reason": {"type": "string", "description": "why", "maxLength": 40}, "answer": {"type": "string", "enum": ["A", "B"], "default": "A"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1}}, "required": ["reason", "answer", "confidence"]},
    {"minimum": 3, "maximum": 4},
    {"properties": {"a": {"items": {"maxLength": 1}, "maxItems": 2}}, "required": ["a"]},
]

NAMES = ["id", "name", "a", "b", "on", "größe", "x y", "tag\"s", "n_1", "Z"]


def scalar(pick):
    kind = pick.randrange(9)
    if kind == 0:
        low = pick.randint(-10**pick.randint(0, 8), 10**pick.randint(0, 8))
        return {"type": "integer", "minimum": low, "maximum": low + pick.randint(0, 10**pick.randint(0, 6))}
    if kind == 1:
        low = round(pick.uniform(-100, 100), pick.randint(0, 4))
        return {"type": "number", "minimum": low, "maximum": round(low + pick.uniform(0.1, 1000), 3)}
    if kind == 2:
        low = pick.randint(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + pick.randint(0, 6)}
    if kind == 3:
        return {"type": "string", "pattern": pick.choice(
            ["^[a-z]{1,4}$", "^(x|yz)*$", "^\\d{2}:\\d{2}$", "^[^\"a]{1,3}$", "^v(0|[1-9]\\d?)\\.\\d$", "^\\w+$", "^.?$"])}
    if kind == 4:
        return {"enum": pick.sample(["a", "b", "aa", "a\tb", 0, 1, -1, 2.5, None, True, [], {}, [1, "é"]], pick.randint(1, 5))}
    if kind == 5:
        return {"const": pick.choice(["k", 7, None, False, [1, [2]], {"a": {}}, ""])}
    if kind == 6:
        return {"type": pick.choice(["boolean", "null"])}
    if kind == 7:
        return {"type": "integer", pick.choice(["minimum", "exclusiveMinimum"]): pick.randint(-50, 5000)}
    return {"type": pick.sample(["boolean", "null", "integer"], 2)}


def schema(pick, depth=3):
    kind = pick.randrange(6) if depth > 0 else 0
    if kind <= 1:
        return scalar(pick)
    if kind == 2:
        out = {"type": "array", "items": schema(pick, depth - 1), "maxItems": pick.randint(0, 3)}
        out["minItems"] = pick.randint(0, out["maxItems"])
        if pick.random() < 0.3:
            out["prefixItems"] = [schema(pick, depth - 1) for _ in range(pick.randint(1, 2))]
            out["maxItems"] += 2
        return out
    if kind == 3:
        return {"anyOf": [schema(pick, depth - 1) for _ in range(pick.randint(1, 3))]}
    names = pick.sample(NAMES, pick.randint(1, 4))
    out = {"type": "object", "properties": {name: schema(pick, depth - 1) for name in names},
           "required": pick.sample(names, pick.randint(0, len(names)))}
    more = pick.random()
    if more < 0.4:
        out["additionalProperties"] = False
    elif more < 0.5:
        out["additionalProperties"] = scalar(pick)
    elif more < 0.6:
        out["maxProperties"] = pick.randint(max(1, len(out["required"])), 4)
    return out


def schemas(n, seed=1):
    """The hard ones, then random ones: n in all."""
    pick = random.Random(seed)
    return [*HARD, *(schema(pick) for _ in range(max(0, n - len(HARD))))][:n]
