"""Choices, by name or number. Wherever one is expected its lower-case name does as well: "hkvd"."""

from enum import Enum, IntEnum, IntFlag
from typing import Iterable, Type, TypeVar, Union

from . import raw


# blend:enums


#: A ``ratio`` that lets the controller choose (CacheBlend 5.1).
RATIO_AUTO: float = raw.RATIO_AUTO
#: The default ``ratio``: it keeps an agreement with full prefill, as far as the store has seen.
RATIO_FIDELITY: float = raw.RATIO_FIDELITY

E = TypeVar("E", bound=IntEnum)
K = TypeVar("K", bound=Enum)  # an IntFlag need not be an IntEnum
V = TypeVar("V")


def known(kind: Type[K], number: int) -> K:
    """A number of the library as a choice; the number itself, where a newer library has more of them."""
    try:
        return kind(number)
    except ValueError:
        return number  # type: ignore[return-value]


def text(value: str, name: str) -> str:
    """The option `name`, which must be a text."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")
    return value


def listed(values: Iterable[V], name: str) -> Iterable[V]:
    """The option `name`, which must be several: one str would be taken for its characters."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} are a list of str, and this is one {type(values).__name__}"
                        if isinstance(values, (str, bytes)) else f"{name} are a list, and this is {values!r}")
    return values


def choice(kind: Type[E], value: Union[E, int, str]) -> int:
    """The number of a choice; ValueError names those there are."""
    if isinstance(value, str):
        try:
            return int(kind[value.upper()])
        except KeyError:
            known = ", ".join(repr(member.name.lower()) for member in kind)
            raise ValueError(f"{value!r} is no {kind.__name__}: there are {known}") from None
    return int(value)
