"""Grammars: what a generated text must be."""

from typing import Optional, Union

from . import _enums, raw
from ._call import Cancel, watched
from ._context import Closable
from ._enums import GrammarLanguage, choice
from ._model_base import ModelBase


class Grammar(Closable):
    """What a generated text must be, compiled for a model's tokenizer: any JSON object, or what `text` says,
    such as a JSON schema, or the functions of which one must be called. Immutable, thread-safe; for any number
    of calls of :meth:`Fusion.generate`.

        Grammar(model, language="json_schema", text=json.dumps(schema))

    # blend:documentation grammar_options
    Raises InvalidArgumentError (the text cannot be used, or nothing satisfies it), UnsupportedError (names
    what of it cannot be kept; or this build has no grammars), CancelledError; of a call also NotFoundError (the
    model has no chat template) and FormatError (it cannot be parsed).
    """

    def __init__(self, model: ModelBase, *,
                 # blend:parameters grammar_options
                 cancel: Optional[Cancel] = None) -> None:
        options = raw.GrammarOptions()
        # blend:set grammar_options
        with watched(options, None, cancel):
            self._raw = raw.Grammar.open(model._raw, options)
