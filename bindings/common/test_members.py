"""Every member of C's option structs is in each language: generated, or in a line of members.txt."""

import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE / "generate"))
from headers import Headers  # noqa: E402
from meaning import Meaning  # noqa: E402
from python import argument  # noqa: E402

SOURCES = {"python": (ROOT / "bindings/python/libblend", "*.py", "parameters fields"),
           "java": (ROOT / "bindings/java/src/io/libblend", "*.java", "setters"),
           "go": (ROOT / "bindings/go/blend", "*.go", "fields")}


def options(headers):
    return {name: struct for name, struct in headers.structs.items() if name.endswith(("_options", "_description"))}


def by_hand(struct):
    """Members that are no values, lengths of arrays or what callbacks are handed."""
    values = {member.name for member in struct.fields}
    names = {member.name for member in struct.members}
    return [member.name for member in struct.members
            if member.name not in values and member.name not in ("struct_size", "reserved")
            and not member.name.endswith("user") and not (member.name[:2] == "n_" and member.name[2:] in names)]


def lines(text):
    """{C's name: {language: name}} of members.txt."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            c, python, java, go, *why = line.split()
            found[c] = {"python": python, "java": java, "go": go}
            assert why or "-" not in (python, java, go), f"no reason: {line}"
    return found


def python_has(text, name):
    """Class(parameter), Class.method(parameter) or Class.member."""
    owner, member, parameter = re.fullmatch(r"(\w+)(?:\.(\w+))?(?:\((\w+)\))?", name).groups()
    kinds = re.findall(rf"^class (\w+)(?:\((\w+)[^\n]*)?:\n(.*?)(?=^\S|\Z)", text, re.S | re.M)
    bases = {kind: base for kind, base, _ in kinds}
    bodies = "\n".join(body for kind, _, body in kinds if kind in (owner, bases.get(owner)))
    if parameter is None:
        return bool(re.search(rf"^    (?:def )?{member}[(:]", bodies, re.M))
    signatures = re.findall(rf"^    def {member or '__init__'}\((.*?)\) ->", bodies, re.S | re.M)
    return any(re.search(rf"\b{parameter}: ", signature) for signature in signatures)


def java_has(folder, name):
    kind, *inner, member = name.split(".")
    text = (folder / f"{kind}.java").read_text()
    return bool(re.search(rf"^ +public (?:static )?(?:<[^>]*> )?[\w<>\[\], .]+ {member}\(", text, re.M)
                or re.search(rf"^public record {kind}\([^)]*\b{member}\b", text, re.M))


def go_has(text, name):
    kind, member = name.split(".")
    if re.search(rf"^func \(\w+ \*?{kind}\) {member}\(", text, re.M):
        return True
    body = re.search(rf"^type {kind} struct \{{\n(.*?)^\}}", text, re.S | re.M)
    return bool(body and re.search(rf"^\t(?:\w+, )*{member}\b", body[1], re.M))


class Members(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.headers = Headers()
        cls.options = options(cls.headers)
        cls.lines = lines((HERE / "members.txt").read_text())
        cls.text = {language: "\n".join(path.read_text() for path in sorted(folder.glob(pattern)))
                    for language, (folder, pattern, _) in SOURCES.items()}

    def test_values_are_generated(self):
        meaning = Meaning(self.headers)
        self.assertGreater(len(self.options), 12)
        for struct in self.options:
            for language, (_, _, what) in SOURCES.items():
                marks = re.findall(rf"^[ \t]*(?://|#) ?blend:(?:{what.replace(' ', '|')}) {struct}(?: (.*))?$",
                                   self.text[language], re.M)
                with self.subTest(struct=struct, language=language):
                    self.assertTrue(marks, "no line blend: of it")
                left_out = [set(rest.split()[1:]) if rest.startswith("but ") else set() for rest in marks]
                for name in set.intersection(*left_out) if left_out else ():
                    with self.subTest(struct=struct, language=language, left_out=name):
                        # Then it is written by hand, as a parameter of the same name.
                        values = {argument(value) for value in meaning.options(struct)}
                        self.assertIn(name, values)
                        self.assertRegex(self.text[language], rf"\b{name}: ")

    def test_the_others_have_a_line(self):
        for struct, of in self.options.items():
            for member in by_hand(of):
                with self.subTest(member=f"{struct}.{member}"):
                    self.assertIn(f"blend_{struct}.{member}", self.lines)

    def test_every_line_is_true(self):
        known = {f"blend_{struct}.{member}" for struct, of in self.options.items() for member in by_hand(of)}
        for c, names in self.lines.items():
            with self.subTest(member=c):
                self.assertIn(c, known)
                has = {"python": python_has(self.text["python"], names["python"]) if names["python"] != "-" else True,
                       "java": java_has(SOURCES["java"][0], names["java"]) if names["java"] != "-" else True,
                       "go": go_has(self.text["go"], names["go"]) if names["go"] != "-" else True}
                self.assertEqual([f"{language}: {names[language]}" for language, there in has.items() if not there], [])


if __name__ == "__main__":
    unittest.main()
