"""Output of the generator for a header: an option is in every language, named and documented by it."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "generate"))
import cpp  # noqa: E402
import go  # noqa: E402
import java  # noqa: E402
import python  # noqa: E402
from headers import Headers  # noqa: E402
from meaning import Meaning  # noqa: E402

CODES = """
#define BLEND_POLICY_FULL 1u /* all of them */
#define BLEND_POLICY_NONE 2u
#define BLEND_BAKE_FAST 1u    /* in a hurry;
                                 see BLEND_POLICY_FULL */
#define BLEND_BAKE_NO_SALT 2u /* BLEND_E_IO instead of salt */
"""
OPTIONS = """
typedef struct blend_bake_options {
  uint32_t struct_size;
  uint32_t flags;   /* BLEND_BAKE_*; default 0 */
  uint32_t policy;  /* BLEND_POLICY_*; default FULL */
  uint32_t n_loaves;  /* at once;
                         default 3 */
  const int32_t *hours; /* [n_hours] */
  size_t n_hours;
  uint32_t crust;   /* 1: with one */
  double heat;
  const char *name; /* of the baker; NULL = "" */
  uint64_t ttl_s;   /* 0 (default): for ever */
  void *user;
} blend_bake_options;
"""


class Option(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as folder:  # the headers are read together
            (pathlib.Path(folder) / "codes.h").write_text(CODES)
            (pathlib.Path(folder) / "options.h").write_text(OPTIONS)
            self.meaning = Meaning(Headers(folder))

    def made(self, lines, what, rest=""):
        return "\n".join(lines[what](self.meaning, "bake_options", rest))

    def test_python(self):
        self.assertEqual(self.made(python.LINES, "parameters", "but heat").split("\n"), [
            "fast: bool = False,", "salt: bool = True,", "policy: Union[_enums.Policy, str, None] = None,",
            "n_loaves: Optional[int] = None,", "crust: bool = False,", 'name: str = "",', "ttl_s: Optional[int] = None,"])
        self.assertIn("fast: in a hurry; see Policy.FULL\n", self.made(python.LINES, "documentation"))
        self.assertIn("salt: False: IoError instead of salt\n", self.made(python.LINES, "documentation"))
        self.assertIn("#: at once; default 3\nn_loaves", self.made(python.LINES, "fields"))
        sets = self.made(python.LINES, "set", "a")
        self.assertIn('if a.name:\n    options.name = _enums.text(a.name, "name")\n', sets)
        self.assertIn("if not a.salt:\n    options.flags |= raw.BAKE_NO_SALT\n", sets)
        self.assertIn("if a.policy is not None:\n    options.policy = choice(_enums.Policy, a.policy)\n", sets)

    def test_java(self):
        made = self.made(java.LINES, "setters", "Options")
        self.assertIn("@param policy which rows of reused chunks are recomputed; default FULL\n", made)
        for line in ("public Options policy(Policy policy) {\n  raw.setPolicy(policy.code);",
                     "public Options loaves(int loaves) {\n  if (loaves < 0) {\n    throw new InvalidArgumentException(0, "
                     "\"loaves(\" + loaves + \"): a number of 0 or more is needed\");\n  }\n  raw.setNLoaves(loaves);",
                     "public Options crust(boolean crust) {\n  raw.setCrust(crust ? 1 : 0);",
                     "public Options heat(double heat) {", "public Options name(String name) {",
                     "public Options ttl(java.time.Duration ttl) {\n  raw.setTtlS(ttl.toSeconds());",
                     "  raw.setFlags(salt ? raw.getFlags() & ~RawConstants.BAKE_NO_SALT : "):
            self.assertIn(line, made)
        self.assertNotIn("hours", made)

    def test_go(self):
        fields = self.made(go.LINES, "fields")
        for line in ("Fast bool // in a hurry; see PolicyFull", "NoSalt bool", "Loaves int // at once; default 3. Less than 0 is 0",
                     "Heat float64", "TTL time.Duration // 0 (default): for ever"):
            self.assertIn(line, fields)
        sets = self.made(go.LINES, "set")
        self.assertIn("if o.Loaves != 0 {\nr.SetN_loaves(count(orNone(o.Loaves)))\n}", sets)
        self.assertIn("if o.NoSalt {\nr.SetFlags(r.GetFlags() | uint(raw.BAKE_NO_SALT))\n}", sets)

    def test_shim(self):
        fields = cpp.fields(self.meaning.headers)
        self.assertIn("#define BLEND_BAKE_OPTIONS_FIELDS(X) \\\n  X(uint32_t, flags) \\\n", fields)
        self.assertIn("X(std::string, name)", fields)
        for name in ("struct_size", "n_hours", "hours", "user"):
            self.assertNotIn(f", {name})", fields)
        self.assertIn("give(c.heat, s.heat);", cpp.copies(self.meaning.headers))
        self.assertIn("%constant uint32_t BAKE_FAST = 1;", cpp.constants(self.meaning.headers))

    def test_one_name_means_one_thing(self):
        headers = self.meaning.headers
        crust = headers.structs["bake_options"].members[6]
        other = type(crust)(crust.type, False, "crust", 0, "BLEND_POLICY_*")
        headers.structs["sell_options"] = type(headers.structs["bake_options"])("sell_options", (other,))
        with self.assertRaisesRegex(ValueError, "sell_options.crust"):
            Meaning(headers)


unittest.main()
