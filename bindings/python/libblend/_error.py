"""The root of all errors that libblend raises."""

from typing import Any, Tuple


class BlendError(RuntimeError):
    """A call failed. The message is one sentence that names the thing and the way out.

    Subclasses, one a code, are in :mod:`libblend.errors`; several are built-in errors too, so that
    ``except KeyError``, ``ValueError``, ``OSError``, ``MemoryError`` or ``BufferError`` catches them.
    """

    #: BLEND_E_* of blend.h, or one of this binding's own below -1000.
    code: int
    #: The errno, a callback's value, or 0; see the codes.
    detail: int

    def __init__(self, message: str = "", code: int = 0, detail: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.detail = detail
        if isinstance(self, OSError):
            setattr(self, "errno", detail)  # of OSError, which this is then

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.message, self.code, self.detail)
