"""Layerwise fuses: the step API, for hosts that run the model themselves."""

import weakref
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from . import raw
from ._arrays import copy_out, floats_in
from ._call import watched
from ._context import Closable
from ._enums import Dtype
from ._fusion import FuseArguments, fuse_options
from ._infos import FusionInfo, LayerInfo, SegmentInfo
from ._kv import raw_view
from ._model import Model
from ._prompt import Prompt
from ._store import Store, raw_store
from ._types import Array

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._fusion import FuseKeywords


class Layerwise(Closable):
    """A prompt whose model the host runs itself, layer by layer (blend.h, "Step API"):

        for layer in range(n_layers):
            layerwise.fetch_kv(layer, k[layer], v[layer])   # may run ahead, in order
            ...                                     # K and V of layerwise.rows into the cache
            layerwise.synchronize(layer)                 # the stored rows are in place
            rows = layerwise.select(layer, fresh_k, fresh_v)
            ...                                     # the rest of the layer for the rows that go on
            layerwise.commit(layer)

    With the policies "cascade", "probe" and "attention", the layers up to ``layerwise.info.last_asked_layer`` are
    begun for the question's rows first, up to ``rows = layerwise.probe(attention)`` instead of that layer's select
    and commit.

    Options are those of :meth:`Model.fuse`; with a described model on_miss is "compute" or "fail".
    One thread at a time (InUseError). The callbacks of the options may be called by create, select
    and commit.
    """

    def __init__(self, model: Model, store: Optional[Store], prompt: Prompt, **options: "Unpack[FuseKeywords]") -> None:
        arguments = FuseArguments(**options)
        raw_options = fuse_options(arguments)
        self._watched = watched(raw_options, arguments.progress, arguments.cancel, arguments.score)
        self._arrays: Dict[int, Tuple[Array, Array]] = {}
        with self._watched:
            self._raw = raw.Layerwise.create(model._raw, raw_store(store), prompt._raw, raw_options)
        # Where probe() is due, and which is written to again after it; None: nowhere.
        self._probed = self._raw.info().last_asked_layer or None
        # Before the arrays go, of a layerwise fuse that was forgotten: they may be written to until then.
        self._end = weakref.finalize(self, self._raw.close)

    def restart(self) -> None:
        """Starts again at layer 0, after CorruptError: the damaged chunk is a miss now."""
        self._raw.restart()
        self._arrays.clear()

    def fetch_kv(self, layer: int, k: Array, v: Array, *,
              dtype: Optional[Union[Dtype, str]] = None, unrotated: bool = False) -> None:
        """Says where the layer's K and V go, [rows of the prompt, n_kv_heads, head_dim], and lets its
        placing start. The layerwise fuse keeps the arrays until the layer is synchronized, those of
        ``info.last_asked_layer`` until it is committed: :meth:`probe` has it placed once more."""
        self._raw.fetch_kv(layer, raw_view(k, v, dtype, unrotated, writable=True))
        self._arrays[layer] = (k, v)

    def synchronize(self, layer: int) -> None:
        """Waits until the stored rows of the layer are in place. Raises CorruptError (then
        :meth:`restart`), IoError, NumericError, CancelledError."""
        self._raw.synchronize(layer)
        if layer != self._probed:
            self._arrays.pop(layer, None)

    def probe(self, attention: Array) -> Array:
        """The rows to begin layer 0 with, uint32 [n]. attention: what the question's rows attend to, mean
        over heads, these rows and the layers ``info.first_asked_layer`` to ``info.last_asked_layer``; [rows of
        the prompt]."""
        with self._watched:
            return copy_out(self._raw.probe(floats_in(attention, "attention")))

    def select(self, layer: int, k: Optional[Array] = None, v: Optional[Array] = None, *,
               dtype: Optional[Union[Dtype, str]] = None, unrotated: bool = False) -> Array:
        """The rows to go on with, uint32 [n]. k, v: fresh K and V of ``rows``, in that order; may be
        left out where nothing is measured."""
        with self._watched:
            if k is None or v is None:
                return copy_out(self._raw.select(layer, raw.KvView()))
            return copy_out(self._raw.select(layer, raw_view(k, v, dtype, unrotated, writable=False)))

    def commit(self, layer: int) -> None:
        """The layer is finished."""
        with self._watched:
            self._raw.commit(layer)
        self._arrays.pop(layer, None)

    @property
    def rows(self) -> Array:
        """uint32 [n]: rows that the host computes at this point, ascending."""
        return copy_out(self._raw.rows())

    @property
    def tokens(self) -> Array:
        """int32 [n]: of the prompt."""
        return copy_out(self._raw.tokens())

    @property
    def selected(self) -> Array:
        """uint32 [n]: rows that the policy selected."""
        return copy_out(self._raw.selected())

    @property
    def deviation(self) -> Array:
        """float32 [n_rows]: as of :class:`Fusion`."""
        return copy_out(self._raw.deviation())

    @property
    def info(self) -> FusionInfo:
        """The account so far; complete when the last layer is committed."""
        return FusionInfo._of(self._raw.info())

    @property
    def layers(self) -> List[LayerInfo]:
        """The account of every layer."""
        return [LayerInfo._of(self._raw.layer(i)) for i in range(self._raw.info().n_layers)]

    @property
    def segments(self) -> List[SegmentInfo]:
        """What became of every segment."""
        return [SegmentInfo._of(self._raw.segment(i)) for i in range(self._raw.info().n_segments)]

    def close(self) -> None:
        """At any time; waits for a read under way. Arrays given to fetch_kv are not written any more."""
        super().close()
        self._end.detach()
        self._arrays.clear()
