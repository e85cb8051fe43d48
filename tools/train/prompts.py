"""Prompts: threads merged into one sequence of chunks, with all their questions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import fillers
from stories import BUILDERS, Builder, Cast, Fact, Sentence, Thread, cleaning

MIN_CHUNKS, MAX_CHUNKS = 2, 8
_MERGE_ATTEMPTS = 12


@dataclass
class Prompt:
    """The chunks in prompt order (each ends with a newline) and what may be asked."""

    chunks: list[str]
    facts: list[Fact]  # in random order, contested ones first


@dataclass(frozen=True)
class Mix:
    """What prompts are made of: bounds on the chunks and on the tokens of a chunk, and kinds of threads."""

    min_chunks: int = MIN_CHUNKS
    max_chunks: int = MAX_CHUNKS
    min_tokens: int = 24
    max_tokens: int = 90
    kinds: tuple[tuple[Builder, float], ...] = BUILDERS
    one_kind: float = 0.4  # share of prompts whose threads are all of one kind; the others have two
    named: float = 0.0  # share of sentences that name what they would refer to


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


def _goal(shape: Mix, rng: random.Random) -> int:
    """A chunk's length: mostly short, sometimes long."""
    low, high = shape.min_tokens, shape.max_tokens
    reach = rng.choices((0.2, 0.5, 1.0), weights=(7, 2, 1))[0]
    return rng.randint(low, low + int((high - low) * reach))


def contested(fact: Fact, facts: Sequence[Fact]) -> bool:
    """Say whether the same is told of somebody else too, so that the question's verb does not tell the answer."""
    return any(other is not fact and other.asked is fact.asked for other in facts)


def make_prompt(rng: random.Random, held_out: bool, mix: Mix = Mix()) -> Prompt:
    """Write one prompt with all its questions, contested ones first."""
    cast = Cast(rng, held_out, mix.named)
    room = rng.randint(mix.min_chunks, mix.max_chunks)
    # Only one or two kinds: were every kind there once, a question's verb alone would tell the answer.
    kinds = 1 if rng.random() < mix.one_kind else 2
    builders = rng.choices([builder for builder, _ in mix.kinds], [weight for _, weight in mix.kinds], k=kinds)
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
    chunks = [_chunk(passage, _goal(mix, rng), cast) for passage in _merge(threads, rng)]
    facts = [fact for thread in threads for fact in thread.facts]
    rng.shuffle(facts)
    facts = sorted(facts, key=lambda fact: not contested(fact, facts))
    return Prompt(chunks, facts)
