"""Fusions: one prompt's fused cache, its account, and the text that follows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _enums, raw
from ._arrays import Tokens, lasting, tokens_in, view_out
from ._call import POLL_MS, Cancel, Progress, Score, on_main_thread, raw_cancel, watched
from ._context import Closable
from ._enums import Policy, choice
from ._grammar import Grammar
from ._infos import FusionInfo, LayerInfo, SegmentInfo
from ._profile import Machine, Profile
from ._prompt import Prompt
from ._store import Store, raw_store
from ._types import Array, ChunkId


@dataclass
class FuseArguments:
    """Options of a fuse. None is the library's default, which a `profile` sets if there is one."""

    # blend:fields fuse_options
    #: What these chunks were precomputed after. None: the prompt's head, all tokens before its first
    #: chunk; no tokens: nothing, as for chunks that were prefilled alone.
    chunk_prefix: Optional[Tokens] = None
    #: Gradual filtering: (layer, ratio), layers rise, ratios do not.
    check_layers: Sequence[Tuple[int, float]] = ()
    #: For Policy.UNION: (policy, share).
    terms: Sequence[Tuple[Union[Policy, str], float]] = ()
    #: For Policy.CALLBACK.
    score: Optional[Score] = None
    #: For RATIO_AUTO.
    machine: Optional[Machine] = None
    #: Sets policy, metric, check layer, ratio and chunk prefix; what is given besides holds against it.
    profile: Optional[Profile] = None
    #: Layers.
    progress: Optional[Progress] = None
    cancel: Optional[Cancel] = None


if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class FuseKeywords(TypedDict, total=False):
        """The members of FuseArguments, for what takes them as keywords."""

        # blend:typed fuse_options
        chunk_prefix: Optional[Tokens]
        check_layers: Sequence[Tuple[int, float]]
        terms: Sequence[Tuple[Union[Policy, str], float]]
        score: Optional[Score]
        machine: Optional[Machine]
        profile: Optional[Profile]
        progress: Optional[Progress]
        cancel: Optional[Cancel]


def fuse_options(a: FuseArguments) -> Any:
    """The raw form, without the callbacks."""
    options = raw.FuseOptions()
    if a.profile is not None:
        options.set_profile(a.profile._raw)
    # blend:set fuse_options a
    if a.chunk_prefix is not None:
        options.set_chunk_prefix(tokens_in(a.chunk_prefix))
    if a.check_layers:
        layers = raw.CheckLayers()
        for layer, ratio in a.check_layers:
            layers.add(layer, ratio)
        options.set_check_layers(layers)
    for policy, share in a.terms:
        options.add_term(choice(Policy, policy), share)
    if a.machine is not None:
        options.set_machine(a.machine._raw)
    return options


class Token(NamedTuple):
    """One generated token, and the text that it completes."""

    id: int
    """-1: none, only text that was held back for a stop text and that the end lets go"""
    text: str
    """whole UTF-8 sequences; "" while one is incomplete, or a stop text may have begun"""


#: float32 [n_vocab], the logits of the next token after penalties and bias, to be changed in place: -inf
#: forbids a token. An exception ends the generation.
Logits = Callable[[Array], Any]


class Generation(Iterator[Token]):
    """Iterates over generated tokens; nothing is computed before it is asked for.

    While it is open the fusion refuses other calls (InUseError). It closes at its end, at an error,
    on :meth:`close`, when a ``with`` block around it ends, and when it is collected: a ``for`` loop
    may be left at any time. One thread at a time.
    """

    def __init__(self, stream: Any, logits: Optional[Logits] = None) -> None:
        self._stream = stream
        self._logits = logits
        self._main = on_main_thread()
        self._open = True

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> Token:
        """Raises CancelledError, NumericError, InUseError, ViewHeldError."""
        if not self._open:
            raise StopIteration
        stream = self._stream
        try:
            while True:
                # On the main thread signals are handled between two looks.
                came = stream.next(POLL_MS if self._main else -1)
                if came == 1:
                    return Token(stream.token(), stream.text().decode("utf-8", "replace"))
                if came == 0:
                    break
                if came == 3 and self._logits is not None:
                    self._logits(lasting(stream, stream.logits(), stream.n_logits(), "<f4"))
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def text(self) -> str:
        """The rest of the text, all at once."""
        return "".join(token.text for token in self)

    @property
    def n_tokens(self) -> int:
        """Tokens so far."""
        return int(self._stream.n_tokens())

    @property
    def logprobs(self) -> List[Tuple[int, float]]:
        """Of the last token, with top_logprobs: (token, log of its probability), its own first, then
        those of the likeliest, falling. As the model gave them, before penalties, bias and temperature."""
        stream = self._stream
        return [(stream.logprob_token(i), stream.logprob(i)) for i in range(stream.n_logprobs())]

    @property
    def stopped(self) -> bool:
        """Whether EOS, a stop token, a stop text or the grammar's end ended it, rather than max_tokens."""
        return bool(self._stream.by_stop_token())

    def close(self) -> None:
        """Ends the generation. The fusion has what was generated and asked past, no more."""
        self._open = False
        self._stream.close()

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Fusion(Closable):
    """One prompt's fused KV cache and the logits of its last row. Made by :meth:`Model.fuse`.

    Reading methods may run on several threads together. One that changes the fusion while another
    call runs, or while a :class:`Generation` is open, raises InUseError.

    ``selected``, ``deviation``, ``tokens`` and ``logits`` are read-only arrays over the library's own
    memory, without a copy. They keep it, closed or not, and as long as one of them lives what would
    change it (generate, decode, extend, replace, erase) raises ViewHeldError, which is a BufferError:
    let the array go, or take ``.copy()``.
    """

    def __init__(self, made: Any) -> None:
        self._raw = made

    @property
    def info(self) -> FusionInfo:
        """The account of the fuse."""
        return FusionInfo._of(self._raw.info())

    @property
    def layers(self) -> List[LayerInfo]:
        """The account of every layer."""
        return [LayerInfo._of(self._raw.layer(i)) for i in range(self._raw.info().n_layers)]

    @property
    def segments(self) -> List[SegmentInfo]:
        """What became of every segment."""
        return [SegmentInfo._of(self._raw.segment(i)) for i in range(self._raw.info().n_segments)]

    @property
    def selected(self) -> Array:
        """uint32 [n], rows that the policy selected, ascending. A view."""
        return view_out(self._raw.selected())

    @property
    def deviation(self) -> Array:
        """float32 [n_rows], of every prompt row at the first check layer; 0 where none was measured.
        A view."""
        return view_out(self._raw.deviation())

    @property
    def tokens(self) -> Array:
        """int32 [n_rows], of all rows there are now. A view."""
        return view_out(self._raw.tokens())

    @property
    def logits(self) -> Array:
        """float32 [n_vocab], of the last row. A view."""
        return view_out(self._raw.logits())

    def generate(self, max_tokens: Optional[int] = None, *,
                 # blend:parameters generate_options but max_tokens
                 stop_tokens: Iterable[int] = (), stop: Union[str, bytes, Iterable[Union[str, bytes]]] = (),
                 logit_bias: Optional[Mapping[int, float]] = None, logits: Optional[Logits] = None,
                 grammar: Optional[Grammar] = None, cancel: Optional[Cancel] = None) -> Generation:
        """Tokens one by one, appended to the cache as the next is asked for, so that a later call
        continues. The stop token is not reported.

        # blend:documentation generate_options
        stop_tokens: besides EOS
        stop: the text ends before the first of these, wherever tokens end
        logit_bias: added to the logits of these tokens; -inf: never this token
        logits: called ahead of every token with the logits it is sampled from, to be changed
        grammar: what the text must be; it has the last word on every token. Generation.stopped says then
            whether the text is complete"""
        options = raw.GenerateOptions()
        # blend:set generate_options
        for token in stop_tokens:
            options.add_stop_token(token)
        for text in (stop,) if isinstance(stop, (str, bytes)) else stop:
            options.add_stop_text(text)
        for token, bias in (logit_bias or {}).items():
            options.add_logit_bias(token, bias)
        options.set_shows_logits(logits is not None)
        if grammar is not None:
            options.set_grammar(grammar._raw)
        if cancel is not None:
            options.set_cancel(cancel._raw)
        return Generation(self._raw.generate(options), logits)

    def decode(self, tokens: Tokens, *, cancel: Optional[Cancel] = None) -> None:
        """Appends tokens and computes the logits of the last. A call that fails changes nothing.
        Raises ContextLengthError (no reserved rows left), InvalidArgumentError, NumericError."""
        self._raw.decode(tokens_in(tokens), raw_cancel(cancel))

    def make_exact(self, tokens: Tokens = (), *, cancel: Optional[Cancel] = None) -> int:
        """Replaces K and V of all rows by those of full prefill, and appends those of `tokens` that greedy
        decoding gives, up to the first that it does not; returns how many. So an answer can be shown
        at once, from a :meth:`fork`, and corrected a moment later: generate(temperature=0) goes on from
        there, and the answer is full prefill's. Costs a full prefill, once. A call that fails in it changes
        nothing; one that fails later has kept some of the tokens (:attr:`tokens` says which). Raises
        ContextLengthError, NumericError, OutOfMemoryError."""
        return int(self._raw.make_exact(tokens_in(tokens), raw_cancel(cancel)))

    def extend(self, store: Optional[Store], prompt: Prompt, **options: "Unpack[FuseKeywords]") -> None:
        """Fuses a further turn after the present rows, with passages of its own. Options and
        errors as of :meth:`Model.fuse`; a call that fails changes nothing."""
        arguments = FuseArguments(**options)
        raw_options = fuse_options(arguments)
        with watched(raw_options, arguments.progress, arguments.cancel, arguments.score):
            self._raw.extend(raw_store(store), prompt._raw, raw_options)

    def replace(self, first_row: int, n_rows: int, tokens: Tokens, *,
                cancel: Optional[Cancel] = None) -> None:
        """Replaces rows with tokens; later rows are moved to their new positions, not computed
        again. Without rows it inserts, without tokens it erases. A call that fails changes nothing."""
        self._raw.replace(first_row, n_rows, tokens_in(tokens), raw_cancel(cancel))

    def erase(self, first_row: int, n_rows: int, *, cancel: Optional[Cancel] = None) -> None:
        """Takes rows out, such as a conversation's oldest."""
        self._raw.erase(first_row, n_rows, raw_cancel(cancel))

    def fork(self) -> "Fusion":
        """A second fusion with what this one has now, for several answers to one prompt: K and V are
        shared until one of them is written to, so that it costs the rows that come. Any of them may
        be closed first. Raises OutOfMemoryError."""
        return Fusion(self._raw.fork())

    def save(self, store: Store, *, tenant: str = "", cancel: Optional[Cancel] = None) -> ChunkId:
        """Keeps K and V in the store until the conversation goes on (:meth:`Model.restore`); written in
        the background, :meth:`Store.flush` waits for it. Raises ReadOnlyError, NumericError."""
        return str(self._raw.save(store._raw, tenant, raw_cancel(cancel)))

    def __repr__(self) -> str:
        return "<libblend.Fusion>"
