"""Choices, by name or number. Wherever one is expected its lower-case name does as well: "hkvd"."""

from enum import IntEnum, IntFlag
from typing import Type, TypeVar, Union

from . import raw


# blend:enums


#: A ``ratio`` that lets the controller choose (CacheBlend 5.1).
RATIO_AUTO: float = raw.RATIO_AUTO
#: The default ``ratio``: it keeps an agreement with full prefill, as far as the store has seen.
RATIO_FIDELITY: float = raw.RATIO_FIDELITY

E = TypeVar("E", bound=IntEnum)


def choice(kind: Type[E], value: Union[E, int, str]) -> int:
    """The number of a choice; ValueError names those there are."""
    if isinstance(value, str):
        try:
            return int(kind[value.upper()])
        except KeyError:
            known = ", ".join(repr(member.name.lower()) for member in kind)
            raise ValueError(f"{value!r} is no {kind.__name__}: there are {known}") from None
    return int(value)
