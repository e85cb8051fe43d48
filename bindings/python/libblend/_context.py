"""Contexts: who computes."""

import sys
import threading
import weakref
from typing import Any, Callable, Optional, TypeVar, Union

from . import _enums, raw
from ._call import spoken
from ._enums import choice

#: ``(code, message)`` of something worth a log line: a negative BLEND_E_* code, or one that tells of
#: an eviction. Called on a thread of the binding's own, one event at a time.
OnEvent = Callable[[int, str], Any]

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


def _tell(events: Any, on_event: OnEvent) -> None:
    event = raw.Event()
    while events.next(-1, event) == 1:
        try:
            on_event(event.code, spoken(event.message))
        except BaseException:  # there is no call that it could come out of
            sys.excepthook(*sys.exc_info())


def _stop(events: Any, thread: threading.Thread) -> None:
    events.stop()
    if thread is not threading.current_thread():
        thread.join()


class Context(Closable):
    """Owns the compute threads; calls on it from several threads share them fairly. Thread-safe.

    # blend:documentation ctx_options
    on_event: see :data:`OnEvent`. What it raises goes to sys.excepthook.

    Raises InvalidArgumentError, NoDeviceError (says what is missing), UnsupportedError.
    """

    def __init__(self, threads: Optional[int] = None, backend: str = "cpu",
                 on_event: Optional[OnEvent] = None, *,
                 # blend:parameters ctx_options but threads backend
                 ) -> None:
        options = raw.ContextOptions()
        # blend:set ctx_options
        events = raw.Events()
        if on_event is not None:
            options.set_events(events)
        self._raw = raw.Context.create(options)
        if on_event is None:
            return
        thread = threading.Thread(target=_tell, args=(events, on_event), name="libblend events",
                                  daemon=True)
        thread.start()
        # At exit, before the interpreter goes: a thread that waits in C++ would not survive it.
        self._events_end = weakref.finalize(self, _stop, events, thread)

    def close(self) -> None:
        """Lets the threads go. Models and stores of the context stay usable, and their events come
        until they are closed too."""
        super().close()

    @property
    def backend(self) -> str:
        """What computes and with what: "cpu (AVX-512, VNNI)", "cpu (NEON)", or "cuda:0 (NAME)"."""
        return str(self._raw.backend())

    def __repr__(self) -> str:
        return "<libblend.Context>"
