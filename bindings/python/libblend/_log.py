"""What the library tells the host's log."""

import logging
from typing import Any, Callable, Dict, NamedTuple, Optional, Union

from . import raw
from ._call import spoken
from ._enums import LogLevel, known


class LogRecord(NamedTuple):
    """Something that happened: a store was opened, a chunk was evicted, a server does not answer."""

    #: LogLevel.ERROR to LogLevel.DEBUG.
    level: LogLevel
    #: A BLEND_EVENT_* of blend/log.h, or a negative BLEND_E_* of what failed.
    code: int
    #: Of the code: "BLEND_EVENT_EVICTED".
    name: str
    #: "context", "model", "profile", "store", "remote" or "fuse".
    component: str
    #: One sentence.
    message: str
    #: What is told besides. No record has texts of documents, prompts or answers.
    fields: Dict[str, Union[str, int, float]]
    #: When it was made, in seconds since 1970.
    time: float


#: What a context gives its records to, on a thread of the binding's own, one at a time.
OnLog = Callable[[LogRecord], Any]

LEVELS = {LogLevel.ERROR: logging.ERROR, LogLevel.WARNING: logging.WARNING, LogLevel.INFO: logging.INFO,
          LogLevel.DEBUG: logging.DEBUG}


def to_logging(logger: Optional[logging.Logger] = None) -> OnLog:
    """Gives records to the :mod:`logging` module: ``Context(log=to_logging())``.

    `logger` is by default "libblend"; each component has a child of it ("libblend.store"). A field `path`
    becomes the attribute ``blend_path`` of logging's record, the code's name ``blend_name``. Which records
    are made at all is said by ``Context(log_level=...)``.
    """
    root = logging.getLogger("libblend") if logger is None else logger

    def give(record: LogRecord) -> None:
        extra: Dict[str, Any] = {f"blend_{key}": value for key, value in record.fields.items()}
        extra.update(blend_name=record.name, blend_code=record.code, blend_time=record.time)
        root.getChild(record.component).log(LEVELS.get(record.level, logging.INFO), "%s", record.message, extra=extra)

    return give


def made(told: Any) -> LogRecord:
    """A record of the raw module."""
    values = {raw.FIELD_TEXT: told.field_text, raw.FIELD_INTEGER: told.field_integer,
              raw.FIELD_NUMBER: told.field_number}
    fields = {told.field_key(i): values[told.field_type(i)](i) for i in range(told.n_fields())}
    return LogRecord(known(LogLevel, told.level()), told.code(), told.name(), told.component(), spoken(told.message()),
                     fields, told.time_unix_ns() / 1e9)
