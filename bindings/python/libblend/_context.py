"""Contexts: who computes."""

import sys
import threading
import weakref
from typing import Any, Callable, Optional, TypeVar, Union

from . import raw
from ._enums import KvDtype, choice

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
            on_event(event.code, event.message)
        except BaseException:  # there is no call that it could come out of
            sys.excepthook(*sys.exc_info())


def _stop(events: Any, thread: threading.Thread) -> None:
    events.stop()
    if thread is not threading.current_thread():
        thread.join()


class Context(Closable):
    """Owns the compute threads; calls on it from several threads share them fairly. Thread-safe.

    threads: compute threads, 0 for as many CPUs as this process may use.
    backend: what computes: "cpu", "cuda", "cuda:N" or "auto".
    pin_threads: whether each of the threads that it starts keeps to one CPU (BLEND_CTX_PIN_THREADS).
    cache_dtype: what the K and V of prompts are kept as; AUTO is F32 on a CPU, where F16 halves their
    memory, and BF16 on a GPU.
    on_event: see :data:`OnEvent`. What it raises goes to sys.excepthook.

    Raises InvalidArgumentError, NoDeviceError (says what is missing), UnsupportedError.
    """

    def __init__(self, threads: int = 0, backend: str = "cpu",
                 on_event: Optional[OnEvent] = None, *, pin_threads: bool = False,
                 cache_dtype: Union[KvDtype, str] = KvDtype.AUTO) -> None:
        kept_as = choice(KvDtype, cache_dtype)
        if on_event is None:
            self._raw = raw.Context.create(threads, pin_threads, kept_as, backend)
            return
        events = raw.Events()
        self._raw = raw.Context.create_with_events(threads, pin_threads, kept_as, backend, events)
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
