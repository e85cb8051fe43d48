"""What surrounds a call: its errors, its callbacks, the keys that interrupt it."""

import atexit
import os
import re
import threading
from typing import Any, Callable, Optional

from . import _arrays, raw
from ._error import BlendError
from ._infos import Measurement
from ._names import NAMES
from ._types import Array
from .errors import CLASSES, CallbackError

#: ``done`` of ``total`` layers, bytes, chunks or prefills. Return False to stop the call with a
#: CallbackError; an exception stops it too, and comes out of the call as it is.
Progress = Callable[[int, int], Any]
#: ``(layer, rows, deviation, scores)``, arrays [n] that are valid during the call: uint32 rows of the
#: prompt, float32 deviations as measured, float32 scores to be written (deviations, at first).
Score = Callable[[int, Array, Array, Array], Any]
#: A line of a calibration as it is measured.
OnMeasurement = Callable[[Measurement], Any]

#: How often a call on the main thread looks whether a signal came.
POLL_MS = 50


def spoken(message: str) -> str:
    """A sentence of the library, with Python's names of what it calls by its name in C."""
    if "blend_" not in message and "BLEND_" not in message:
        return message
    return re.sub(r"\b(?:blend|BLEND)_\w*\w", lambda found: NAMES.get(found[0], found[0]), message)


def make_error(code: int, detail: int, message: str) -> BlendError:
    return CLASSES.get(code, BlendError)(spoken(message), code, detail)


raw._set_raise(make_error)
atexit.register(raw._close_entrance)


_main_thread: Optional[int] = None


def _know_main_thread() -> None:
    global _main_thread
    _main_thread = threading.main_thread().ident
    raw._set_main_thread(_main_thread)


_know_main_thread()
os.register_at_fork(after_in_child=_know_main_thread)


def on_main_thread() -> bool:
    """Whether this is the thread that signals come to."""
    return threading.get_ident() == _main_thread


class Cancel:
    """A flag that any thread may raise to stop the calls it was given to: they raise CancelledError.

    One may serve several calls, and again after :meth:`reset`. Thread-safe.
    """

    def __init__(self) -> None:
        self._raw = raw.Cancel()

    def request(self) -> None:
        """Raises the flag; calls stop within about one layer's time."""
        self._raw.request()

    def reset(self) -> None:
        """Lowers the flag."""
        self._raw.reset()


class Listener(raw.Listener):  # type: ignore[misc]
    """The callbacks of one call. What they raise is kept: it must not pass through C++."""

    def __init__(self, progress: Optional[Progress], score: Optional[Score],
                 on_measurement: Optional[OnMeasurement]) -> None:
        super().__init__()
        self._progress = progress
        self._score = score
        self._on_measurement = on_measurement
        self.error: Optional[BaseException] = None

    def check(self) -> None:
        """Raises what a callback raised, once."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _ask(self, function: Callable[..., Any], *args: Any) -> bool:
        try:
            return function(*args) is not False
        except BaseException as error:  # KeyboardInterrupt too
            self.error = error
            return False

    def progress(self, done: int, total: int) -> bool:
        return self._progress is None or self._ask(self._progress, done, total)

    def score(self, candidates: Any) -> bool:
        if self._score is None:
            return True
        return self._ask(self._score_arrays, candidates)

    def _score_arrays(self, candidates: Any) -> Any:
        assert self._score is not None
        size = candidates.size()
        return self._score(
            candidates.layer(), _arrays.borrowed(candidates.rows(), size, "<u4", False),
            _arrays.borrowed(candidates.deviation(), size, "<f4", False),
            _arrays.borrowed(candidates.scores(), size, "<f4", True))

    def measurement(self, line: Any) -> bool:
        if self._on_measurement is None:
            return True
        return self._ask(lambda: self._on_measurement(Measurement._of(line)))  # type: ignore[misc]


class watched:
    """Around a call: gives its options the callbacks and the cancel token, lets signals in while it
    runs on the main thread, and raises what a callback raised, or KeyboardInterrupt."""

    def __init__(self, options: Any, progress: Optional[Progress] = None,
                 cancel: Optional[Cancel] = None, score: Optional[Score] = None,
                 on_measurement: Optional[OnMeasurement] = None) -> None:
        self._listener: Optional[Listener] = None
        self._watch: Any = None
        self._options = options
        if progress is not None or score is not None or on_measurement is not None:
            self._listener = Listener(progress, score, on_measurement)
        if self._listener is not None or on_main_thread():
            self._watch = raw.Watch(POLL_MS)
            if self._listener is not None:
                self._watch.set_inner(self._listener, progress is not None)
            options.set_listener(self._watch)
        if cancel is not None:
            options.set_cancel(cancel._raw)

    def __enter__(self) -> Any:
        return self._options

    def check(self) -> None:
        """Raises what a callback has kept, once."""
        if self._listener is not None:
            self._listener.check()
        if self._watch is not None:
            self._watch.raise_kept()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, CallbackError):
            raise_own(self.check)


def raise_own(check: Callable[[], None]) -> None:
    """Raises what a callback raised, in the place of the CallbackError that is being handled."""
    try:
        check()
    except BaseException as own:
        own.__suppress_context__ = True
        raise


def raw_cancel(cancel: Optional[Cancel]) -> Any:
    return raw.Cancel() if cancel is None else cancel._raw
