"""Contexts: who computes."""

import sys
import threading
import weakref
from typing import Any, Optional, TypeVar, Union

from . import _enums, raw
from ._enums import choice
from ._log import OnLog, made

T = TypeVar("T", bound="Closable")


class Closable:
    """What holds memory or files of the library until :meth:`close`, or until it is collected.

    Objects may be closed in any order and by any thread, while calls run too: what a call needs
    stays until it is done. Afterwards every method raises ClosedError; closing twice is fine.
    """

    _raw: Any

    def close(self) -> None:
        """Lets go of what the object holds."""
        self._raw.close()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _tell(queue: Any, log: OnLog) -> None:
    record = raw.LogRecord()
    while queue.next(-1, record) == 1:
        try:
            log(made(record))
        except BaseException:  # there is no call that it could come out of
            sys.excepthook(*sys.exc_info())


def _stop(queue: Any, thread: threading.Thread) -> None:
    queue.stop()
    if thread is not threading.current_thread():
        thread.join()


class Context(Closable):
    """Owns the compute threads; calls on it from several threads share them fairly. Thread-safe.

    # blend:documentation ctx_options
    log: called with each :class:`LogRecord`, on a thread of the binding's own, one at a time;
        :func:`to_logging` gives them to the logging module. What it raises goes to sys.excepthook. If more than
        1024 wait, the oldest are dropped.

    Raises InvalidArgumentError, NoDeviceError (says what is missing), UnsupportedError.
    """

    def __init__(self, threads: Optional[int] = None, backend: str = "cpu",
                 log: Optional[OnLog] = None, *,
                 # blend:parameters ctx_options but threads backend
                 ) -> None:
        options = raw.ContextOptions()
        # blend:set ctx_options
        queue = raw.LogQueue()
        if log is not None:
            options.set_log(queue)
        self._raw = raw.Context.create(options)
        if log is None:
            return
        thread = threading.Thread(target=_tell, args=(queue, log), name="libblend log",
                                  daemon=True)
        thread.start()
        # At exit, before the interpreter goes: a thread that waits in C++ would not survive it.
        self._log_end = weakref.finalize(self, _stop, queue, thread)

    def close(self) -> None:
        """Lets the threads go. Models and stores of the context stay usable, and their records
        come until they are closed too."""
        super().close()

    @property
    def backend(self) -> str:
        """What computes and with what: "cpu (AVX-512, VNNI)", "cpu (NEON)", or "cuda:0 (NAME)"."""
        return str(self._raw.backend())

    def __repr__(self) -> str:
        return "<libblend.Context>"
