"""What was measured: profiles of a model, and how fast this machine is."""

import os
from typing import List, Optional, Sequence, Tuple, Union

from . import _enums, raw
from ._arrays import copy_out
from ._call import Cancel, Progress, watched
from ._context import Closable
from ._enums import Codec, choice
from ._infos import Advice, CodecCost, MachineInfo, Measurement, ProfileInfo
from ._model_base import ModelBase
from ._types import Array, Path


class Profile(Closable):
    """What calibration found out about one model. Immutable, thread-safe.

    Without a `path` the one that lies beside the model: FILE.profile of a file,
    DIRECTORY/blend.profile of a directory.
    Raises NotFoundError, IoError, FormatError, CorruptError, MismatchError (of another model).
    """

    def __init__(self, model: ModelBase, path: Optional[Path] = None) -> None:
        self._raw = raw.Profile.open(model._raw, os.fsencode(path or ""))

    @property
    def info(self) -> ProfileInfo:
        """What was chosen."""
        return ProfileInfo._of(self._raw.info())

    @property
    def chunk_prefix(self) -> Array:
        """int32 [n]: what chunks are to be prefilled after; give it to precompute too."""
        return copy_out(self._raw.chunk_prefix())

    @property
    def layer_steps(self) -> Array:
        """float32 [n_layers]: how much coarser or finer than others the codec rans is to round each
        layer (Store.set_codec_profile); none: all layers alike."""
        return copy_out(self._raw.layer_steps())

    @property
    def measurements(self) -> List[Measurement]:
        """The table that it was chosen from."""
        return [Measurement._of(self._raw.measurement(i))
                for i in range(self._raw.info().n_measurements)]

    def drift(self, layer: int) -> Tuple[float, float]:
        """Shares of the squared drift of K and of V at `layer` that its map took away. Raises
        NotFoundError for a layer without a map."""
        shares = self._raw.drift(layer)
        return shares.k, shares.v

    def codec_cost(self, codec: Union[Codec, str]) -> CodecCost:
        """What storing chunks with a codec that rounds costs, beside the fuse itself. Raises NotFoundError for
        one that was not measured: one that is lossless, one that cannot keep a value of this model, and every
        codec where the profile recomputes everything."""
        return CodecCost._of(self._raw.codec_cost(choice(Codec, codec)))


class Machine(Closable):
    """How fast this machine prefills a model: taken from the file `path` if it holds this machine's
    measurement, otherwise measured in a few prefills and written there. Immutable, thread-safe.

    # blend:documentation machine_options
    """

    def __init__(self, model: ModelBase, path: Optional[Path] = None, *,
                 # blend:parameters machine_options
                 progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> None:
        options = raw.MachineOptions()
        # blend:set machine_options
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

    def advise(self, storages: Sequence[Tuple[float, float]], *,
               # blend:parameters advise_options
               ) -> List[Advice]:
        """Advice for each of several storages, (bytes per second, cost per GB and hour) each:
        the cheapest that adds no delay has AdviceFlags.CHEAPEST (CacheBlend 5.1).

        # blend:documentation advise_options
        """
        options = raw.AdviseOptions()
        # blend:set advise_options
        places = raw.Storages()
        for bytes_per_s, cost in storages:
            places.add(bytes_per_s, cost)
        advices = self._raw.advise(places, options)
        return [Advice._of(advices.at(i)) for i in range(advices.size())]
