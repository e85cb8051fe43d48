"""Every C function has, in each language, the name that the rule at the top of methods.txt gives, or a line there."""

import pathlib
import re
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LANGUAGES = ("python", "java", "go")
# What is not a method anywhere: errors, defaults of structs, and the text of an id.
HELPERS = re.compile(r"blend_(error_\w+|code_name|chunk_id_\w+|\w+_options_init|model_description_init)")
INITIALS = {"kv": "KV", "id": "ID"}


def camel(words):
    return "".join(word.capitalize() for word in words)


def go_case(name):
    return "".join(INITIALS.get(word, word.capitalize()) for word in name.split("_"))


def java_case(name):
    first, *rest = name.split("_")
    return first + camel(rest)


def declared(text):
    """[(function, its parameters)] of the headers' text."""
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return [(name, [" ".join(one.split()) for one in parameters.split(",")])
            for name, parameters in re.findall(r"^BLEND_API [^;]*?\b(blend_\w+)\(([^;]*)\);", plain, re.S | re.M)]


def class_of(handle):
    return "Context" if handle == "ctx" else camel(handle.split("_"))


def rule(function, parameters, handles):
    """{language: name} of a function, as the rule has it."""
    words = function.removeprefix("blend_")
    own = next((handle for handle in handles if words.startswith(handle + "_")), None)
    given = [one for parameter in parameters for one in re.findall(r"^(?:const )?blend_(\w+) \*\w+$", parameter)
             if one in handles]
    made = [one for parameter in parameters for one in re.findall(r"^blend_(\w+) \*\*out$", parameter)]
    if own and made == [own] and re.match(rf"{own}_(open|create)", words):
        verb, _, how = words.removeprefix(own + "_").partition("_")
        kind = class_of(own)
        if how:
            return {"python": f"{kind}.{verb}_{how}", "java": f"{kind}.{verb}{camel(how.split('_'))}",
                    "go": f"New{kind}{camel(how.split('_'))}"}
        return {"python": kind, "java": f"{kind}.{verb}", "go": ("Open" if verb == "open" else "New") + kind}
    owner = given[0] if given else own
    stem = words.removeprefix(own + "_") if own else words
    if not own and stem.startswith("chunk_"):
        stem = stem.removeprefix("chunk_") + "_chunk"
    if stem.startswith("get_"):
        stem = stem.removeprefix("get_")
        index = re.fullmatch(r"u?int\d+_t (\w+)|size_t (\w+)", parameters[1])
        if index and (index[1] or index[2]) in (stem, "index"):
            stem += "s"
    if not owner:
        return {"python": stem, "java": java_case(stem), "go": go_case(stem)}
    kind = class_of(owner)
    of_none = "" if given else kind  # Go has no static methods: CompactStore
    return {"python": f"{kind}.{stem}", "java": f"{kind}.{java_case(stem)}",
            "go": go_case(stem) + of_none if of_none else f"{kind}.{go_case(stem)}"}


def exceptions(text):
    """{function: {language: name}} of methods.txt, every line with its reason."""
    rows = [re.split(r"\s{1,}", line, maxsplit=4) for line in text.splitlines() if line and not line.startswith("#")]
    for row in rows:
        assert len(row) == 5, f"no reason: {row}"
    return {row[0]: dict(zip(LANGUAGES, row[1:4])) for row in rows}


# What the shim has besides: arrays of an info, the length of a list, and an object that stands for no store, since Go
# has no null for one.
SHIM_ONLY = {"CallReader.n_calls", "Profile.chunk_prefix", "Profile.layer_steps", "Store.none"}


def shim():
    """{class: its functions} of those that are handles, as SWIG sees them."""
    text = "\n".join(path.read_text() for path in sorted((HERE / "shim").glob("*.h")))
    text = re.sub(r"//[^\n]*", "", text)
    found = {}
    for kind, body in re.findall(r"^class (\w+)[^;{]*\{\n(.*?)^\};", text, re.S | re.M):
        body = re.sub(r"#ifndef SWIG.*?#(?:endif|else)", "", body, flags=re.S)
        found[kind] = set(re.findall(r"[ *](\w+)\([^;{]*\)\s*(?:const )?noexcept", body))
    return found


class Sources:
    """What is public in the sources of the languages."""

    def __init__(self):
        python = "\n".join(p.read_text() for p in sorted((ROOT / "bindings/python/libblend").glob("*.py")))
        self.found = {"python": {"__version__"}, "java": set(), "go": set()}
        bases = {}
        for kind, base, body in re.findall(r"^class (\w+)(?:\((\w+)?[^\n]*)?:\n(.*?)(?=^\S|\Z)", python, re.S | re.M):
            bases[kind] = base
            self.found["python"].add(kind)
            for name in re.findall(r"^    def ([a-z]\w*)\(|^    ([a-z]\w*):", body, re.M):
                self.found["python"].add(f"{kind}.{''.join(name)}")
        for kind, base in list(bases.items()) * 3:  # a base's base too
            for name in [name for name in self.found["python"] if base and name.startswith(base + ".")]:
                self.found["python"].add(kind + name[len(base):])
        for path in (ROOT / "bindings/java/src/io/libblend").glob("*.java"):
            for name in re.findall(r"^  public [^=;{]*?(\w+)\(", path.read_text(), re.M):
                self.found["java"].add(path.stem if name == path.stem else f"{path.stem}.{name}")
        for path in (ROOT / "bindings/go/blend").glob("*.go"):
            text = path.read_text()
            for kind, name in re.findall(r"^func (?:\(\w+ \*?(\w+)\) )?([A-Z]\w*)\(", text, re.M):
                self.found["go"].add(f"{kind}.{name}" if kind else name)
            for kind, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", text, re.S | re.M):
                self.found["go"].update(f"{kind}.{name}" for name in re.findall(r"^\t([A-Z]\w*) ", body, re.M))

    def has(self, language, name):
        return name in self.found[language]


class Methods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = "\n".join(path.read_text() for path in sorted((ROOT / "include/blend").glob("*.h")))
        cls.functions = [(name, of) for name, of in declared(text) if not HELPERS.fullmatch(name)]
        cls.handles = set(re.findall(r"^typedef struct blend_(\w+) blend_\1;", text, re.M))
        cls.exceptions = exceptions((HERE / "methods.txt").read_text())
        cls.sources = Sources()

    def test_every_function_has_its_name(self):
        self.assertGreater(len(self.functions), 90)
        for function, parameters in self.functions:
            wanted = self.exceptions.get(function) or rule(function, parameters, self.handles)
            for language, name in wanted.items():
                with self.subTest(function=function, language=language):
                    self.assertTrue(name == "-" or self.sources.has(language, name), f"there is no {name}")

    def test_every_exception_is_one(self):
        functions = dict(self.functions)
        for function, names in self.exceptions.items():
            with self.subTest(function=function):
                self.assertIn(function, functions)
                self.assertNotEqual(names, rule(function, functions[function], self.handles))

    def test_the_shim_is_no_fatter(self):
        names = {name for function, of in self.functions
                 for name in (self.exceptions.get(function) or rule(function, of, self.handles)).values()}
        stems = {name.rpartition(".")[2] for name in names} | {"create", "open"}
        for kind, functions in shim().items():
            if kind not in {class_of(handle) for handle in self.handles} - {"Chat"}:
                continue
            for name in functions:
                with self.subTest(name=f"{kind}.{name}"):
                    self.assertTrue(f"{kind}.{name}" in SHIM_ONLY or stems & {name, name + "s"},
                                    "no C function has it: it repeats another, or belongs into the facades")

    def test_the_rule(self):
        header = """BLEND_API int32_t blend_store_set_label(const blend_store *store, const char *label);
                    BLEND_API int32_t blend_store_open(blend_store **out, const blend_ctx *ctx);
                    BLEND_API int32_t blend_chunk_find(const blend_model *model, const blend_store *store);
                    BLEND_API int32_t blend_fusion_get_layer(const blend_fusion *fusion, uint32_t layer);
                    BLEND_API int32_t blend_layerwise_fetch_kv(blend_layerwise *layerwise, uint32_t layer);
                    BLEND_API int32_t blend_store_compact(const char *path);"""
        made = [rule(name, of, {"store", "ctx", "model", "fusion", "layerwise"})
                for name, of in declared(re.sub(r"^ +", "", header, flags=re.M))]
        self.assertEqual([tuple(names.values()) for names in made], [
            ("Store.set_label", "Store.setLabel", "Store.SetLabel"), ("Store", "Store.open", "OpenStore"),
            ("Model.find_chunk", "Model.findChunk", "Model.FindChunk"),
            ("Fusion.layers", "Fusion.layers", "Fusion.Layers"),
            ("Layerwise.fetch_kv", "Layerwise.fetchKv", "Layerwise.FetchKV"),
            ("Store.compact", "Store.compact", "CompactStore")])


if __name__ == "__main__":
    unittest.main()
