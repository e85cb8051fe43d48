"""No circle among the modules of the package: each needs only modules that do not need it."""

import ast
import pathlib
import unittest

import libblend

PACKAGE = pathlib.Path(libblend.__file__).resolve().parent  # as it was made: the sources have lines for the generator


def needed(path):
    """Names of the package's own modules that a module imports, for its types too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found.update([node.module.split(".")[0]] if node.module else [name.name for name in node.names])
    return found


def circle(modules):
    """Modules that need each other, in that order; [] where there are none."""
    done = set()

    def walk(name, trail):
        if name in trail:
            return trail[trail.index(name):] + [name]
        if name in done or name not in modules:
            return []
        for other in sorted(modules[name]):
            found = walk(other, trail + [name])
            if found:
                return found
        done.add(name)
        return []

    return next(filter(None, (walk(name, []) for name in sorted(modules))), [])


class Imports(unittest.TestCase):
    def test_no_circle(self):
        modules = {path.stem: needed(path) for path in PACKAGE.glob("*.py")}
        self.assertIn("_fusion", modules["_model"])
        self.assertEqual([], circle(modules))

    def test_a_circle_is_found(self):
        self.assertEqual(["a", "b", "a"], circle({"a": {"b"}, "b": {"c", "a"}, "c": set()}))


if __name__ == "__main__":
    unittest.main()
