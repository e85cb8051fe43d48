#!/usr/bin/env python3
"""Generates the parts of the bindings' sources that follow from the public headers and errors.txt.

    generate common OUT            what the shim and SWIG include
    generate python SOURCES OUT    the package: the files in SOURCES, and those that are made whole
    generate java SOURCES OUT      the same for the folder of the Java package
    generate go SOURCES OUT RAW    a complete Go module; RAW: where SWIG has left its files
    generate check                 errors.txt against the headers; CTest: bindings.table

A line `// blend:WHAT STRUCT` (`# blend:...`) of a source is replaced by what the language's back end
makes of a struct; README.md says what there is.
"""

import argparse
import pathlib
import re
import sys
import textwrap

import cpp
import errors
import go
import java
import python
from headers import Headers
from meaning import Meaning

# Back end, the sources it takes, and files of other tools beside its output.
LANGUAGES = {
    "python": (python, ("*.py", "py.typed"), {"raw.py"}),
    "java": (java, ("*.java",), set()),
    "go": (go, ("*.go", "go.mod"), set()),
}


def expanded(path, lines, meaning):
    """A source with its blend: lines replaced."""

    def made(found):
        indent, what, struct, rest = found.groups()
        if what not in lines or (struct and struct not in meaning.headers.structs):
            raise SystemExit(f"{path}: there is no {found[0].strip()!r}")
        return textwrap.indent("\n".join(lines[what](meaning, struct, rest or "")), indent)

    return re.sub(r"^([ \t]*)(?://|#) ?blend:(\w+)(?: (\w+)(?: (.*))?)?$", made, path.read_text(), flags=re.M)


def write(folder, files):
    """Writes what has changed: an unchanged file rebuilds nothing."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def check(headers):
    differ = errors.differences(headers)
    for name, value in differ:
        print(f"errors.txt and the headers differ in {name} ({value})", file=sys.stderr)
    return 1 if differ else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    commands.add_parser("common").add_argument("out", type=pathlib.Path)
    for name in LANGUAGES:
        command = commands.add_parser(name)
        command.add_argument("sources", type=pathlib.Path)
        command.add_argument("out", type=pathlib.Path)
        if name == "go":
            command.add_argument("raw", type=pathlib.Path)
    args = parser.parse_args()
    headers = Headers()
    if args.command == "check":
        return check(headers)
    meaning = Meaning(headers)
    if args.command == "common":
        write(args.out, cpp.make(meaning))
        return 0
    back_end, patterns, beside = LANGUAGES[args.command]
    files = back_end.make(meaning)
    for path in sorted(path for pattern in patterns for path in args.sources.rglob(pattern)):
        files[str(path.relative_to(args.sources))] = expanded(path, back_end.LINES, meaning)
    if args.command == "go":
        files |= go.raw(args.raw)
        files = go.formatted(files)
    write(args.out, files)
    for path in set(args.out.rglob(patterns[0])) - {args.out / name for name in files}:
        if path.name not in beside:  # of a source that no longer exists
            path.unlink()
    return 0


sys.exit(main())
