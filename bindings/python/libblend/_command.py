"""``blend``: the command of this wheel, in its place."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the command, which Ctrl-C, pipes and exit codes then belong to."""
    command = pathlib.Path(__file__).parent / "bin" / "blend"
    if not os.access(command, os.X_OK):
        sys.exit(f"blend: {command} is not here or not executable: install libblend from a wheel")
    os.execv(command, ["blend", *sys.argv[1:]])
