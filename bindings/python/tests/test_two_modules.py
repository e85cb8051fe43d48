"""Another SWIG module in the process: each has its own table of types (SWIG_TYPE_TABLE)."""

import subprocess
import sys
import unittest

CODE = """
import sys
import {first}
import {second}
import libblend, other
from libblend import raw

theirs, ours = other.Cancel(7), libblend.Cancel()
assert other.number_of(theirs) == 7
ours.request()
for call, wrong in ((raw.ModelOptions().set_cancel, theirs), (other.number_of, ours._raw)):
    try:
        call(wrong)
    except TypeError:
        pass
    else:
        raise SystemExit(f"{{call}} took {{wrong}}")
del theirs, ours
tables = set(dir(sys.modules[next(m for m in sys.modules if m.startswith("swig_runtime_data"))]))
assert {{"type_pointer_capsule", "type_pointer_capsuleblend"}} <= tables, tables
with libblend.Context(1) as ctx:
    print(ctx.backend)
"""


class TwoModules(unittest.TestCase):
    def test_either_first(self):
        for first, second in (("libblend", "other"), ("other", "libblend")):
            code = CODE.format(first=first, second=second)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"^cpu \(.+\)\n$")


if __name__ == "__main__":
    unittest.main()
