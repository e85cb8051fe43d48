"""A file that is not there is Python's FileNotFoundError as well, which a missing chunk is not."""

import errno
import os
from contextlib import contextmanager
from typing import Any, Iterator

from .errors import NotFoundError


class MissingFileError(NotFoundError, FileNotFoundError):
    """There is no such file or directory."""

    def __init__(self, message: str = "", code: int = NotFoundError.CODE, detail: int = 0) -> None:
        super().__init__(message, code, detail)
        self.errno = errno.ENOENT


@contextmanager
def files(path: Any) -> Iterator[None]:
    """Around a call that opens `path`."""
    try:
        yield
    except NotFoundError as error:
        missing = MissingFileError(error.message, error.code, error.detail)
        missing.filename = os.fsdecode(path)
        raise missing from None
