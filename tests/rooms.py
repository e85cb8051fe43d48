#!/usr/bin/env python3
"""Every #include against the table of rooms in docs/architecture.md.

    python3 tests/rooms.py

A room is a folder of the table's first column, without the rooms that have rows of their own inside
it. Its files may include one another, and what the column "Knows" names in backticks: another room, or
one file of it. A header there that is not ours (`lmdb.h`) may be included by the rooms that name it and
by no others. No room knows itself through others.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = "docs/architecture.md"
CHECKED = ("include", "src", "kernels", "tools/blend", "bindings")
SUFFIXES = (".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".i")
SEARCHED = ("include", "src", "kernels", "bindings/common")  # as the compiler does, after the own folder
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


def read_table(text):
    """The names in "Knows" by room, as the section "The rooms" has them."""
    section = text.split("\n## The rooms\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")]
            for line in section.splitlines() if line.startswith("|")]
    head = rows[0]
    room, knows = head.index("Room"), head.index("Knows")
    return {NAME.fullmatch(row[room])[1]: set(NAME.findall(row[knows])) for row in rows[2:]}


def room_of(path, rooms):
    """The innermost room that holds the file; None: none does."""
    around = (str(folder) for folder in path.parents)
    return next((folder for folder in around if folder in rooms), None)


def within(name, rooms):
    """The rooms that a name in "Knows" stands for: a room itself, or those inside a folder that is none."""
    if name in rooms:
        return {name}
    return {room for room in rooms if room.startswith(name + "/")}


def find(name, file):
    """The file of ours that an #include means; None: a third party's, or a generated one."""
    for folder in (file.parent, *(ROOT / searched for searched in SEARCHED)):
        path = (folder / name).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            return path.relative_to(ROOT)
    return None


def check_table(rooms):
    for room, knows in rooms.items():
        if not (ROOT / room).is_dir():
            yield f"{TABLE}: there is no folder '{room}'"
        for name in knows:
            if not (ROOT / name).exists() and not name.endswith(".h"):
                yield f"{TABLE}: '{room}' knows '{name}', which is neither ours nor a header"

    done = set()

    def circles(room, path):
        if room in path:
            yield f"{TABLE}: {' knows '.join([*path[path.index(room):], room])}"
        elif room not in done:
            for name in sorted(set().union(*(within(name, rooms) for name in rooms[room]))):
                yield from circles(name, [*path, room])
            done.add(room)

    for room in rooms:
        yield from circles(room, [])


def check_file(file, rooms):
    """Gives what is wrong, and counts the includes that it judged."""
    n, wrong = 0, []
    path = file.relative_to(ROOT)
    room = room_of(path, rooms)
    if room is None:
        return 0, [f"{path}: its folder is no room of {TABLE}"]
    text = file.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        name = match[1]
        where = f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}"
        target = find(name, file)
        if target is None:
            owners = [r for r, knows in rooms.items() if name in knows]
            if owners and room not in owners:
                wrong.append(f"{where}: {name} is for {', '.join(owners)} alone")
            continue
        n += 1
        other = room_of(target, rooms)
        known = set().union(*(within(name, rooms) for name in rooms[room]))
        if other != room and other not in known and str(target) not in rooms[room]:
            wrong.append(f"{where}: {room} does not know {target}")
    return n, wrong


def main():
    rooms = read_table((ROOT / TABLE).read_text(encoding="utf-8"))
    wrong = list(check_table(rooms))
    n_files = n_includes = 0
    for folder in CHECKED:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                n, of_file = check_file(file, rooms)
                n_files += 1
                n_includes += n
                wrong += of_file
    print("\n".join(wrong) or f"{len(rooms)} rooms, {n_files} files, {n_includes} includes of ours")
    return 1 if wrong or n_includes == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
