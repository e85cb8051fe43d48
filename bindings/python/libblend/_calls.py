"""Calls of functions in an answer, while it is generated."""

from typing import List

from . import _enums, raw
from ._context import Closable
from ._infos import CallInfo
from ._model_base import ModelBase


class CallReader(Closable):
    """Finds the calls in one answer, in the form of a chat template. One thread at a time (InUseError).

        reader = CallReader(model, tools=json.dumps(functions))
        answer = fusion.generate()
        for token in answer:
            print(reader.add(token.text, token.id), end="")
        print(reader.end(is_cut=not answer.stopped))
        for call in reader.calls:
            if not call.is_cut:
                functions[call.name](**json.loads(call.arguments))

    # blend:documentation call_reader_options
    Raises NotFoundError where there is no template, FormatError, UnsupportedError, InvalidArgumentError (also if
    `tools` are no list of functions). The model may be closed then.
    """

    def __init__(self, model: ModelBase, *,
                 # blend:parameters call_reader_options
                 ) -> None:
        options = raw.CallReaderOptions()
        # blend:set call_reader_options
        self._raw = raw.CallReader.open(model._raw, options)

    def add(self, text: str, token: int = -1) -> str:
        """Takes the next piece of the answer. Returns what is now known to be no part of a call; text that may become a
        call is held back, and what turns out to be none is returned later as it was written. token: the
        piece's; -1: none."""
        return str(self._raw.add(token, text))

    def end(self, is_cut: bool = False) -> str:
        """The same at the end of the answer, after which nothing is added. is_cut: the model did not end it, so that the
        last call may be cut."""
        return str(self._raw.end(is_cut))

    @property
    def calls(self) -> List[CallInfo]:
        """So far."""
        return self._calls_from(0)

    def _calls_from(self, first: int) -> List[CallInfo]:
        return [CallInfo._of(self._raw.call(i)) for i in range(first, self._raw.n_calls())]
