"""The tokenizer: SentencePiece BPE with byte fallback, and its Hugging Face twin.

    python tokenizer.py --out work/tokenizer

writes tokenizer.model (SentencePiece) and tokenizer.json (Hugging Face, the
same ids), and checks on fresh text that the two agree.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import sentencepiece as spm
from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE

import words
from prompts import Prompt, make_prompt

UNK, BOS, EOS = 0, 1, 2
VOCAB_SIZE = 1536
_SPACE = "\u2581"


def question_text(question: str) -> str:
    """The last segment of a prompt; the answer follows it."""
    return f"Question: {question}\nAnswer:"


class Coder:
    """Turns text into ids, each segment on its own, as the prompt format asks."""

    def __init__(self, model: Path) -> None:
        self.processor = spm.SentencePieceProcessor(model_file=str(model))
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return int(self.processor.vocab_size())

    def segment(self, text: str) -> list[int]:
        """Ids of one segment: no BOS, a space put before its first word."""
        return list(self.processor.encode(text))

    def answer(self, text: str) -> list[int]:
        """Ids of an answer and the EOS after it."""
        return self.segment(text) + [EOS]

    def text(self, ids: list[int]) -> str:
        """The text of generated ids."""
        return str(self.processor.decode(ids)).strip()


def corpus(seed: int, count: int) -> list[str]:
    """Lines to learn the vocabulary from: prompts, questions and the word lists."""
    rng = random.Random(f"tokenizer:{seed}")
    lines: list[str] = []
    for _ in range(count):
        prompt: Prompt = make_prompt(rng, held_out=False)
        lines += [chunk.rstrip("\n") for chunk in prompt.chunks]
        for fact in prompt.facts:
            lines += question_text(fact.question).split("\n") + [fact.answer]
    every = words.WOMEN + words.MEN + words.SURNAMES + words.PLACE_FIRST + words.PLACE_SECOND + words.THING_FIRST
    every += words.THING_SECOND + words.ROLES + words.NICKNAMES + words.NUMBERS
    return lines + ["The " + word for word in every] * (count // 40)


def train_model(out: Path, seed: int, count: int) -> None:
    """Train tokenizer.model."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "corpus.txt"
        text.write_text("\n".join(corpus(seed, count)) + "\n", encoding="utf-8")
        spm.SentencePieceTrainer.train(
            input=str(text),
            model_prefix=str(out / "tokenizer"),
            model_type="bpe",
            vocab_size=VOCAB_SIZE,
            byte_fallback=True,
            character_coverage=1.0,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            pad_id=-1,
            required_chars="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;?!'()-",
            num_threads=1,
            minloglevel=2,
        )
    (out / "tokenizer.vocab").unlink(missing_ok=True)


def to_hugging_face(model: Path) -> Tokenizer:
    """The same tokenizer as a `tokenizers` object.

    SentencePiece joins any two neighbours whose joined text is a piece, the
    best score first; the merges below are all such pairs in that order.
    """
    processor = spm.SentencePieceProcessor(model_file=str(model))
    size = processor.vocab_size()
    vocab = {processor.id_to_piece(i): i for i in range(size)}
    merges: list[tuple[float, int, int, tuple[str, str]]] = []
    for piece, index in vocab.items():
        if processor.is_byte(index) or processor.is_control(index) or processor.is_unknown(index):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                merges.append((-processor.get_score(index), vocab[left], vocab[right], (left, right)))
    merges.sort()
    tokenizer = Tokenizer(
        BPE(vocab, [pair for *_, pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    return tokenizer


def check_twins(coder: Coder, twin: Tokenizer, count: int = 300) -> None:
    """Raise unless both give the same ids on held-out prompts and odd text."""
    rng = random.Random("tokenizer check")
    texts = ["", " ", "  two  spaces ", "caf\u00e9 \u4e16\u754c \U0001f642", "Tabs\tand\nlines\n\n", "Zyx'qw 42,000!", "no"]
    for _ in range(count):
        prompt = make_prompt(rng, held_out=True)
        texts += prompt.chunks + [question_text(f.question) for f in prompt.facts] + [f.answer for f in prompt.facts]
    alphabet = "abcdefghijklmnopqrstuvwxyz    ABC.,\n?!09\u00e9"
    texts += ["".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 60))) for _ in range(count)]
    for text in texts:
        ours, theirs = coder.segment(text), twin.encode(text, add_special_tokens=False).ids
        if ours != theirs:
            raise SystemExit(f"the tokenizers differ on {text!r}: {ours} and {theirs}")
    print(f"{len(texts)} texts: the two tokenizers agree")


def main() -> None:
    """Read the options, train, convert and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=6000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    train_model(options.out, options.seed, options.prompts)
    twin = to_hugging_face(options.out / "tokenizer.model")
    twin.save(str(options.out / "tokenizer.json"))
    check_twins(Coder(options.out / "tokenizer.model"), twin)


if __name__ == "__main__":
    main()
