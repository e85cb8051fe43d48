#!/usr/bin/env python3
"""Puts files into a corpus's archive, each content once, named by its SHA-1 as libFuzzer does.

    tests/fuzz/pack.py tests/fuzz/corpus/gguf.zip FOUND...     files, or folders of them
    unzip -q tests/fuzz/corpus/gguf.zip -d SEEDS               for a fuzzer, which wants a folder

The archive is not compressed (git does that), and has the same bytes for the same contents. An input that a
reader should see by name goes into the folder beside the archive instead.
"""

import hashlib
import pathlib
import sys
import zipfile


def main():
    archive = pathlib.Path(sys.argv[1])
    contents = {}
    if archive.exists():
        with zipfile.ZipFile(archive) as packed:
            contents = {name: packed.read(name) for name in packed.namelist()}
    for found in map(pathlib.Path, sys.argv[2:]):
        for file in sorted(found.rglob("*")) if found.is_dir() else [found]:
            if file.is_file():
                data = file.read_bytes()
                contents[hashlib.sha1(data).hexdigest()] = data
    with zipfile.ZipFile(archive, "w") as packed:  # stored: run_corpus.cpp reads nothing else
        for name, data in sorted(contents.items()):
            packed.writestr(zipfile.ZipInfo(name), data)
    print(f"{archive}: {len(contents)} inputs")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
