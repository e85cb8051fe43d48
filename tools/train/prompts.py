"""Prompts: threads merged into one sequence of chunks, with all their questions."""

from __future__ import annotations

import random
from dataclasses import dataclass

import fillers
from stories import BUILDERS, Cast, Fact, Sentence, Thread, cleaning

MIN_CHUNKS, MAX_CHUNKS = 2, 8
_MERGE_ATTEMPTS = 12


@dataclass
class Prompt:
    """The chunks in prompt order (each ends with a newline) and what may be asked."""

    chunks: list[str]
    facts: list[Fact]


@dataclass(frozen=True)
class Shape:
    """How long a prompt is: bounds on its chunks and on the tokens of a chunk."""

    min_chunks: int = MIN_CHUNKS
    max_chunks: int = MAX_CHUNKS
    min_tokens: int = 24
    max_tokens: int = 90


def resolves(passages: list[list[Sentence]]) -> bool:
    """Say whether every reference means the nearest earlier entity of its type."""
    named: dict[str, str] = {}
    meant: dict[str, str] = {}
    last_pair: set[str] = set()
    for passage in passages:
        for sentence in passage:
            for kind, entity in sentence.refers:
                if kind == "word":
                    continue
                if kind == "pair":
                    if entity not in last_pair:
                        return False
                    continue
                if named.get(kind) != entity or meant.get(kind) != entity:
                    return False
                meant[kind] = entity
            people = {entity for kind, entity in sentence.names if kind in ("woman", "man")}
            if len(people) == 2:
                last_pair = people
            for kind, entity in sentence.names:
                named[kind] = meant[kind] = entity
    return True


def _merge(threads: list[Thread], rng: random.Random) -> list[list[Sentence]]:
    """Mix the threads, keeping the order within each; whole threads if need be."""
    for _ in range(_MERGE_ATTEMPTS):
        turns = [i for i, thread in enumerate(threads) for _ in thread.passages]
        rng.shuffle(turns)
        left = [iter(thread.passages) for thread in threads]
        mixed = [next(left[i]) for i in turns]
        if resolves(mixed):
            return mixed
    order = list(threads)
    rng.shuffle(order)
    return [passage for thread in order for passage in thread.passages]


def _length(text: str) -> int:
    """Tokens of a sentence, nearly: its words and its punctuation."""
    return len(text.split()) + sum(text.count(mark) for mark in ".,:?")


def _chunk(passage: list[Sentence], goal: int, cast: Cast) -> str:
    """A passage among fillers, up to about `goal` tokens."""
    rng = cast.rng
    pool = fillers.TRAIN + fillers.HELD_OUT * cast.held_out
    texts = [sentence.text for sentence in passage]
    size = 1 + sum(map(_length, texts))
    spare = rng.sample(pool, len(pool))
    while spare and size < goal:
        filler = spare.pop()
        texts.insert(rng.randrange(len(texts) + 1), filler)
        size += _length(filler)
    return " ".join(texts) + "\n"


def _goal(shape: Shape, rng: random.Random) -> int:
    """A chunk's length: mostly short, sometimes long."""
    low, high = shape.min_tokens, shape.max_tokens
    reach = rng.choices((0.2, 0.5, 1.0), weights=(7, 2, 1))[0]
    return rng.randint(low, low + int((high - low) * reach))


def make_prompt(rng: random.Random, held_out: bool, shape: Shape = Shape()) -> Prompt:
    """Write one prompt with all its questions."""
    cast = Cast(rng, held_out)
    room = rng.randint(shape.min_chunks, shape.max_chunks)
    # Of one or two kinds only: were every kind there once, a question's verb alone would tell the answer.
    builders = rng.choices([builder for builder, _ in BUILDERS], [weight for _, weight in BUILDERS], k=2)
    threads: list[Thread] = []
    while room:
        builder = rng.choice(builders) if room > 1 else cleaning
        before = cast.remember()
        thread = builder(cast)
        if len(thread.passages) <= room:
            threads.append(thread)
            room -= len(thread.passages)
        else:
            cast.forget_since(before)
    chunks = [_chunk(passage, _goal(shape, rng), cast) for passage in _merge(threads, rng)]
    facts = [fact for thread in threads for fact in thread.facts]
    rng.shuffle(facts)
    return Prompt(chunks, facts)
