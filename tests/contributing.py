"""The worked option of CONTRIBUTING.md is a patch that applies to the tree as it is. 77: git is not here."""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    if shutil.which("git") is None:
        print("skipped: git is not installed")
        return 77
    patches = re.findall(r"^```diff\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.S | re.M)
    if not patches:
        print("CONTRIBUTING.md has no patch", file=sys.stderr)
        return 1
    for patch in patches:
        done = subprocess.run(["git", "apply", "--check", "-"], input=patch, text=True, capture_output=True, cwd=ROOT)
        if done.returncode != 0:
            print("CONTRIBUTING.md: the patch no longer applies: bring it up to date\n" + done.stderr, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
