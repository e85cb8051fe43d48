"""errors.txt: the classes of errors, and whether they are those of the headers."""

import pathlib
import re
from dataclasses import dataclass
from typing import Optional

COMMON = pathlib.Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Error:
    code: str  # the name in the header, without BLEND_E_ or BLEND_SHIM_E_
    value: int
    name: str
    python: Optional[str]  # the built-in class that it is besides
    text: str

    @property
    def own(self):
        """Whether it is the shim's: misuse of an object."""
        return self.value <= -1000

    @property
    def constant(self):
        return ("BLEND_SHIM_E_" if self.own else "BLEND_E_") + self.code


def table():
    rows = [line.split(None, 4) for line in (COMMON / "errors.txt").read_text().splitlines()
            if line and not line.startswith("#")]
    return [Error(code, int(value), name, None if python == "-" else python, text)
            for code, value, name, python, text in rows]


def differences(headers):
    """Differences between the table and the headers."""
    defined = {("BLEND_" + c.name, int(c.value)) for c in headers.constants if c.name.startswith("E_")}
    outcome = (COMMON / "shim" / "outcome.h").read_text()
    defined |= {(name, int(value)) for name, value in
                re.findall(r"^#define (BLEND_SHIM_E_\w+) \((-\d+)\)", outcome, re.M)}
    return sorted(defined ^ {(error.constant, error.value) for error in table()})
