#!/usr/bin/env python3
"""Every link of the pages, and every page that a source names.

    python3 tests/links.py

A link must lead to a file of the tree, its anchor to a heading there. Where a source, a script or a page
says docs/NAME.md, there must be such a page; where it adds a title in quotes (docs/NAME.md, "Title"), the
page must have that heading. Every file of bench/results must be named by a page: other raw results stay
out of the tree (bench/results/README.md).
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = (".ci", "bench", "bindings", "cmake", "docs", "examples", "include", "kernels", "packaging", "scripts",
           "src", "tests", "tools")
SUFFIXES = ("", ".c", ".cmake", ".cpp", ".cu", ".cuh", ".go", ".h", ".hpp", ".i", ".java", ".json", ".md", ".py", ".sh",
            ".txt")
LINK = re.compile(r"\]\(([^()\s]+)\)")
NAMED = re.compile(r'\b((?:docs|bench/results)/[\w./-]+\.(?:md|json|txt))(?:, ?"([^"]+)")?')


def text_of(file):
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def headings(page):
    """The titles of a page, and the anchors that GitHub makes of them."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", t) for t in re.findall(r"^#+ +(.+)$", text, re.MULTILINE)]
    return titles, {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}


def check_links(page):
    n, wrong = 0, []
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        n += 1
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{page.relative_to(ROOT)}: there is no {link}")
        elif anchor and anchor not in headings(target)[1]:
            wrong.append(f"{page.relative_to(ROOT)}: {link} leads to no heading")
    return n, wrong


def check_named(file, named):
    wrong = []
    for path, title in NAMED.findall(text_of(file)):
        named.add(path)
        page = ROOT / path
        if not page.is_file():
            wrong.append(f"{file.relative_to(ROOT)}: names {path}, which is not there")
        elif title and re.sub(r"\s+", " ", title) not in headings(page)[0]:
            wrong.append(f'{file.relative_to(ROOT)}: {path} has no heading "{title}"')
    return wrong


def main():
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")
             if file.is_file() and file.suffix in SUFFIXES and "corpus" not in file.parts and "node_modules" not in file.parts]
    files += [file for file in ROOT.iterdir() if file.is_file() and file.suffix in SUFFIXES]
    n_links, wrong, named = 0, [], set()
    for file in sorted(files):
        if file.suffix == ".md":
            n, of_page = check_links(file)
            n_links += n
            wrong += of_page
            named |= {str((file.parent / link).resolve().relative_to(ROOT)) for link in LINK.findall(text_of(file))
                      if "bench/results/" in link}
        if file.resolve() != pathlib.Path(__file__).resolve() and "results" not in file.parts:
            wrong += check_named(file, named)
    for result in (ROOT / "bench" / "results").iterdir():
        if result.suffix != ".md" and str(result.relative_to(ROOT)) not in named:
            wrong.append(f"{result.relative_to(ROOT)}: no page names it")
    print("\n".join(wrong) or f"{len(files)} files, {n_links} links, {len(named)} named")
    return 1 if wrong or n_links == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
