"""A module made by SWIG exports what its language looks for and nothing else.

    python3 test_exports.py NM MODULE
"""

import re
import subprocess
import sys

WANTED = re.compile(r"PyInit_\w+|Java_\w+|JNI_On(Load|Unload)")

nm, module = sys.argv[1:]
listed = subprocess.run([nm, "-D", "--defined-only", module], check=True, capture_output=True, text=True).stdout
names = [line.split()[-1] for line in listed.splitlines()]
others = [name for name in names if not WANTED.fullmatch(name)]
if others or not names:
    sys.exit(f"{len(others)} of the {len(names)} symbols that {module} exports are none of a language's: {others[:5]}")
