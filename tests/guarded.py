#!/usr/bin/env python3
"""Every file that uses src/base/threads/guarded.h under clang's thread safety analysis.

    python3 tests/guarded.py BUILD [--clang clang++]

BUILD has a compile_commands.json. Judged are the sources of src/ that include guarded.h, or a header that
does. Exit code 77: there is no clang++.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
GUARDED = "base/threads/guarded.h"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
KEPT = ("-I", "-D", "-std=", "-isystem")
CHECK = ("-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety")
# One access with the lock and one without: clang must refuse the second.
SAMPLE = """#include "base/threads/guarded.h"
class Sample {
 public:
  int good() { const blend::MutexLock lock(mutex_); return n_; }
  int bad() { return n_; }
 private:
  blend::Mutex mutex_;
  int n_ BLEND_GUARDED_BY(mutex_) = 0;
};
int all(Sample& sample) { return sample.good() + sample.bad(); }
"""


def includes(path):
    return set(INCLUDE.findall(path.read_text(encoding="utf-8")))


def users():
    """The sources that include guarded.h, themselves or by a header of theirs."""
    src = ROOT / "src"
    headers = {str(h.relative_to(src)) for h in src.rglob("*.h") if GUARDED in includes(h)} | {GUARDED}
    return {p for p in src.rglob("*.cpp") if includes(p) & headers}


def arguments(entry):
    """The flags of a compile command that matter to a look at its syntax."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    out = []
    for i, word in enumerate(words):
        if word in KEPT:
            out += words[i:i + 2]
        elif word.startswith(KEPT):
            out.append(word)
    return out


def judge(clang, entry):
    run = subprocess.run([clang, *CHECK, *arguments(entry), entry["file"]], cwd=entry["directory"],
                         capture_output=True, text=True, check=False)
    return entry["file"], run.returncode, run.stderr


def refuses(clang):
    run = subprocess.run([clang, *CHECK, "-std=c++20", f"-I{ROOT / 'src'}", "-xc++", "-"], input=SAMPLE,
                         capture_output=True, text=True, check=False)
    return run.returncode != 0 and run.stderr.count("[-Werror,-Wthread-safety-analysis]") == 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--clang", default="clang++")
    args = parser.parse_args()
    clang = shutil.which(args.clang)
    if clang is None:
        print(f"skipped: there is no {args.clang}")
        return 77
    if not refuses(clang):
        print(f"{clang} does not refuse an access without the lock")
        return 1
    wanted = users()
    entries = {}
    for entry in json.loads((args.build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path in wanted:
            entries.setdefault(path, entry)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [(file, said) for file, rc, said in pool.map(lambda e: judge(clang, e), entries.values()) if rc]
    for file, said in wrong:
        print(f"{file}:\n{said}")
    unbuilt = len(wanted) - len(entries)
    print(f"{len(entries)} files looked at, {unbuilt} are not built here, {len(wrong)} wrong")
    return 1 if wrong or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
