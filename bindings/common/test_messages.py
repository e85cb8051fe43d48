"""No message of the library uses C names with users of another language: every name in it is one of theirs."""

import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "generate"))
import go  # noqa: E402
import java  # noqa: E402
import names  # noqa: E402
import python  # noqa: E402
from headers import Headers  # noqa: E402
from meaning import Meaning  # noqa: E402

ROOT = HERE.parents[1]
# The figures of a store, variables of the environment, what is looked up in a module, what only C and C++ have.
NO_SENTENCES = re.compile(r"blend_(store|remote)_\w+|BLEND_(REMOTE_(USER|PASSWORD|SEAL_KEY)|(CUDA|TLS)_MODULE)"
                          r"|BLEND_E_|blend_(cuda_backend|tls_context)_create")
SOURCES = {"python": ("bindings/python/libblend/*.py",), "java": ("bindings/java/src/io/libblend/*.java",),
           "go": ("bindings/go/blend/*.go",)}


def literals(path):
    """Its string literals, those side by side as one."""
    text = re.sub(r'^\s*#include.*|//.*|extern "C"', "", path.read_text(), flags=re.M)
    return re.sub(r'"\s*"', "", "\0".join(re.findall(r'"(?:[^"\\\n]|\\.)*"', text)))


def said():
    """{name: a file that has it}"""
    found = {}
    for folder in ("src", "bindings/common/shim"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".h", ".cpp") or path.name == "call.cpp" and "shim" in path.parts:
                continue
            for name in re.findall(r"\b(?:blend|BLEND)_\w*\w", literals(path)):
                found.setdefault(name, path.relative_to(ROOT))
    return found


class Messages(unittest.TestCase):
    def setUp(self):
        meaning = Meaning(Headers())
        self.tables = {
            "python": dict(names.table(meaning, "python", python.constant, lambda enum: enum.name,
                                       lambda error: f"{error.name}Error")),
            "java": dict(names.table(meaning, "java", java.constant, java.enum_name,
                                     lambda error: f"{error.name}Exception")),
            "go": dict(names.table(meaning, "go", go.constant, go.enum_name, go.error_name)),
        }

    def test_every_name_is_spoken(self):
        lacking = {name: str(path) for name, path in said().items()
                   if name not in names.functions() and not NO_SENTENCES.fullmatch(name)
                   and not all(name in table for table in self.tables.values())}
        self.assertEqual({}, lacking, "add it to names.txt, or say it without a name")

    def test_every_line_is_needed(self):
        everywhere = said()
        self.assertEqual([], [name for name in names.functions() if name not in everywhere])

    def test_the_names_are_those_of_the_languages(self):
        for language, patterns in SOURCES.items():
            text = "\n".join(path.read_text() for pattern in patterns for path in ROOT.glob(pattern))
            functions = {name: of for name, of in names.functions().items() if name.startswith("blend_")}
            for name, of in functions.items():
                for part in of[language].rstrip("=").split("."):
                    with self.subTest(language=language, name=name):
                        there = re.search(rf"(class|def|func|public|record) [^\n]*\b{part}\b|\n +{part}: ", text)
                        self.assertTrue(there, f"{of[language]} of {name}")

    def test_nothing_of_c_is_left(self):
        for language, table in self.tables.items():
            for name, here in table.items():
                self.assertNotRegex(here, r"blend_|BLEND_", f"{name} in {language}")


if __name__ == "__main__":
    unittest.main()
