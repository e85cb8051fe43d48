"""What was measured: profiles of a model, and how fast this machine is."""

import os
from typing import TYPE_CHECKING, Any, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import raw
from ._arrays import Tokens, copy_out, tokens_in
from ._call import Cancel, OnMeasurement, Progress, watched
from ._context import Closable
from ._enums import Correction, KvDtype, Metric, choice
from ._infos import Advice, MachineInfo, Measurement, ProfileInfo, Verdict
from ._prompt import Prompt
from ._store import Path, set_given

if TYPE_CHECKING:
    from ._model import Model


def _samples(prompts: Iterable[Prompt]) -> Any:
    samples = raw.Samples()
    for prompt in prompts:
        samples.add(prompt._raw)
    return samples


class Profile(Closable):
    """What calibration found out about one model. Immutable, thread-safe.

    Raises NotFoundError, IoError, FormatError, CorruptError, MismatchError (of another model).
    """

    def __init__(self, model: "Model", path: Path) -> None:
        self._raw = raw.Profile.open(model._raw, os.fsencode(path))

    @staticmethod
    def calibrate(model: "Model", samples: Iterable[Prompt], path: Path, *,
                  chunk_prefixes: Optional[Iterable[Tokens]] = None,
                  metrics: Iterable[Union[Metric, str]] = (), ratios: Iterable[float] = (),
                  check_layer: Optional[int] = None, kv_dtype: Union[KvDtype, str, None] = None,
                  correction: Union[Correction, str, None] = None,
                  drift_inputs: Optional[int] = None, drift_rank: Optional[int] = None,
                  ridge: Optional[float] = None, score_tokens: Optional[int] = None,
                  max_kl: Optional[float] = None, min_top1: Optional[float] = None,
                  threads: int = 0, on_measurement: Optional[OnMeasurement] = None,
                  progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> bool:
        """Measures sample prompts (whose chunks are tokens) and writes a profile to `path`,
        atomically. False: written, but no ratio kept the limits `max_kl` (nats) and `min_top1`.
        What is not given is the library's default; see blend_calibrate_options."""
        options = set_given(
            raw.CalibrateOptions(), check_layer=check_layer, drift_inputs=drift_inputs,
            drift_rank=drift_rank, ridge=ridge, score_tokens=score_tokens, max_kl=max_kl,
            min_top1=min_top1, n_threads=threads,
            kv_dtype=None if kv_dtype is None else choice(KvDtype, kv_dtype),
            correction=None if correction is None else choice(Correction, correction))
        for prefix in chunk_prefixes or ():
            options.add_chunk_prefix(tokens_in(prefix))
        for metric in metrics:
            options.add_metric(choice(Metric, metric))
        for ratio in ratios:
            options.add_ratio(ratio)
        with watched(options, progress, cancel, on_measurement=on_measurement):
            return bool(raw.Profile.calibrate(model._raw, _samples(samples), options,
                                              os.fsencode(path)))

    def verify(self, model: "Model", samples: Iterable[Prompt], *, ratios: Iterable[float] = (),
               score_tokens: Optional[int] = None, max_kl: Optional[float] = None,
               min_top1: Optional[float] = None, threads: int = 0,
               on_measurement: Optional[OnMeasurement] = None,
               progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> Verdict:
        """Measures the profile's choice on samples that it was not made from."""
        options = set_given(raw.VerifyOptions(), score_tokens=score_tokens, max_kl=max_kl,
                            min_top1=min_top1, n_threads=threads)
        for ratio in ratios:
            options.add_ratio(ratio)
        with watched(options, progress, cancel, on_measurement=on_measurement):
            return Verdict._of(self._raw.verify(model._raw, _samples(samples), options))

    @property
    def info(self) -> ProfileInfo:
        """What was chosen."""
        return ProfileInfo._of(self._raw.info())

    @property
    def chunk_prefix(self) -> np.ndarray:
        """int32 [n]: what chunks are to be prefilled after; give it to precompute too."""
        return copy_out(self._raw.chunk_prefix())

    @property
    def measurements(self) -> List[Measurement]:
        """The table that it was chosen from."""
        return [Measurement._of(self._raw.measurement(i))
                for i in range(self._raw.info().n_measurements)]

    def drift(self, layer: int) -> Tuple[float, float]:
        """Shares of the squared drift of K and of V at `layer` that its map took away. Raises
        NotFoundError for a layer without a map."""
        return self._raw.drift_k(layer), self._raw.drift_v(layer)


class Machine(Closable):
    """How fast this machine prefills a model: taken from the file `path` if it holds this machine's
    measurement, otherwise measured in a few prefills and written there. Immutable, thread-safe.

    threads: those that are timed, 0 for all; for fuses with `threads`: theirs."""

    def __init__(self, model: "Model", path: Optional[Path] = None, *, measure: bool = False,
                 max_tokens: Optional[int] = None, threads: int = 0,
                 progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> None:
        options = set_given(raw.MachineOptions(), max_tokens=max_tokens, n_threads=threads,
                            flags=raw.MACHINE_MEASURE if measure else 0)
        with watched(options, progress, cancel):
            self._raw = raw.Machine.open(model._raw, b"" if path is None else os.fsencode(path),
                                         options)

    @property
    def info(self) -> MachineInfo:
        """What was measured, when, on what."""
        return MachineInfo._of(self._raw.info())

    @property
    def points(self) -> List[Tuple[int, int]]:
        """(tokens, nanoseconds of a prefill), as measured."""
        points = [self._raw.point(i) for i in range(self._raw.info().n_points)]
        return [(point.n_tokens, point.prefill_ns) for point in points]

    def recompute_ns(self, n_tokens: int, ratio: float = 1.0) -> int:
        """Nanoseconds of recomputing a share of a prompt; ratio 1 is the whole prefill."""
        return int(self._raw.recompute_ns(n_tokens, ratio))

    def advise(self, devices: Sequence[Tuple[float, float]], *, n_tokens: Optional[int] = None,
               ratio: Optional[float] = None, check_layer: Optional[int] = None,
               kv_dtype: Union[KvDtype, str, None] = None) -> List[Advice]:
        """Of places to store chunks, (bytes per second, cost per GB and hour) each, what each would
        mean: the cheapest that adds no delay has AdviceFlags.CHEAPEST (CacheBlend 5.1)."""
        options = set_given(
            raw.AdviseOptions(), n_tokens=n_tokens, ratio=ratio, check_layer=check_layer,
            kv_dtype=None if kv_dtype is None else choice(KvDtype, kv_dtype))
        places = raw.Devices()
        for bytes_per_s, cost in devices:
            places.add(bytes_per_s, cost)
        advices = self._raw.advise(places, options)
        return [Advice._of(advices.at(i)) for i in range(advices.size())]
