"""What a shell and man know of the command is what the command takes.

    python3 help_test.py --blend BLEND [unittest arguments]
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ARGS = argparse.Namespace()


def blend(*args):
    return subprocess.run([ARGS.blend, *args], capture_output=True, text=True, timeout=60)


def options_of(*command):
    """The names in its help, as they are typed."""
    text = blend(*command, "--help").stdout.split("\nExit codes:")[0]
    names = re.findall(r"^  (-[^ ]+)", text, re.M)
    return {name for group in names for name in group.split(",")}


class Help(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.dir = Path(self.temp.name)

    def completed(self, *words):
        """What bash offers for the last word."""
        (self.dir / "blend.bash").write_text(blend("completion", "bash").stdout)
        script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _blend 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
        said = subprocess.run(["bash", "-c", script, self.dir / "blend.bash", *words], cwd=self.dir,
                              capture_output=True, text=True, check=True)
        return set(said.stdout.split())

    def test_bash_completes_commands_options_choices_and_files(self):
        self.assertIn("precompute", self.completed("blend", ""))
        self.assertEqual(self.completed("blend", "store", "comp"), {"compact"})
        for command in (["ask"], ["store", "ls"], ["store"]):
            self.assertLessEqual(options_of(*command), self.completed("blend", *command, ""), command)
        self.assertEqual(self.completed("blend", "ask", "--codec", "int"), {"int8", "int4"})
        # Options of one command are not another's.
        self.assertNotIn("--question", self.completed("blend", "store", "ls", ""))
        (self.dir / "model.gguf").touch()
        self.assertEqual(self.completed("blend", "ask", "--model", "mod"), {"model.gguf"})

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_reads_its_completion(self):
        (self.dir / "_blend").write_text(blend("completion", "zsh").stdout)
        subprocess.run(["zsh", "-n", self.dir / "_blend"], check=True)

    def test_a_shell_that_is_not_known_is_refused(self):
        said = blend("completion", "fish")
        self.assertEqual(said.returncode, 2)
        self.assertIn("bash", said.stderr)

    def test_man_pages_have_every_option(self):
        self.assertEqual(blend("manual", self.dir).returncode, 0)
        pages = {path.name for path in self.dir.iterdir()}
        self.assertLessEqual({"blend.1", "blend-ask.1", "blend-store-ls.1", "blend-model-info.1"}, pages)
        for command in (["ask"], ["store", "evict"], ["calibrate"]):
            page = (self.dir / f"blend-{'-'.join(command)}.1").read_text().replace("\\-", "-")
            for name in options_of(*command):
                self.assertIn(f"\\fB{name}\\fR", page, command)
        # Every line of troff is a request or text: nothing of a description is taken for a request.
        for path in self.dir.iterdir():
            for line in path.read_text().splitlines():
                self.assertRegex(line, r"^(\.(TH|SH|TP|nf|fi)\b|[^.'])|^$", path.name)

    def test_what_is_written_names_commands_that_there_are(self):
        top = self.completed("blend", "")
        below = {group: self.completed("blend", group, "") for group in ("store", "model")}
        root = Path(__file__).parents[2]
        pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("include/blend/*.h"),
                 *root.glob("src/**/*.cpp"), *root.glob("tools/**/*.cpp")]
        n_named = 0
        for page in pages:
            text = page.read_text()
            commands = re.findall(r"`blend ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", text)
            for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
                commands += re.findall(r"^\s*blend ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", block, re.M)
            for first, second in commands:
                n_named += 1
                with self.subTest(page=page.name, command=f"blend {first} {second}"):
                    self.assertIn(first, top | {"manual"})
                    if second and first in below:
                        self.assertIn(second, below[first])
        self.assertGreater(n_named, 50, "the pages are elsewhere")

    def test_manual_is_not_in_the_help(self):
        self.assertNotIn("manual", blend("--help").stdout)
        self.assertEqual(blend("manual", self.dir / "absent").returncode, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blend", required=True)
    rest = parser.parse_known_args(namespace=ARGS)[1]
    unittest.main(argv=[sys.argv[0], *rest])


main()
