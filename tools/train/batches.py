"""Training batches: a prompt's chunks once, with each of its questions after them.

A row holds BOS, the chunks, then several questions with their answers. Every
question sees BOS, the chunks and itself, at the positions it would have were
it alone, so a row is worth as many ordinary prompts as it has questions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from prompts import Mix, Prompt, make_prompt
from tokenizer import BOS, Coder, question_text


@dataclass
class Batch:
    """Tensors of one step; a target of -1 carries no loss."""

    ids: Tensor  # [rows, tokens]
    positions: Tensor  # [rows, tokens]
    mask: Tensor  # [rows, 1, tokens, tokens], true where attention is allowed
    answer_targets: Tensor  # [rows, tokens]
    question_targets: Tensor  # [rows, tokens]
    text_targets: Tensor  # [rows, tokens]


@dataclass
class Row:
    """One prompt in ids."""

    ids: list[int]
    positions: list[int]
    segment: list[int]  # 0 the chunks, 1.. the questions
    answer_targets: list[int]
    question_targets: list[int]
    text_targets: list[int]


@dataclass(frozen=True)
class Stage:
    """What a step of training sees."""

    mix: Mix = Mix()
    statements: float = 0.0  # share of facts asked as a statement to be completed


def make_row(
    prompt: Prompt, coder: Coder, most_questions: int, rng: random.Random | None = None, statements: float = 0.0
) -> Row:
    """Lay a prompt out as a row; `rng` says which facts are asked as statements."""
    context = [BOS] + [i for chunk in prompt.chunks for i in coder.segment(chunk)]
    row = Row(
        list(context), list(range(len(context))), [0] * len(context),
        [-1] * len(context), [-1] * len(context), context[1:] + [-1],
    )
    for number, fact in enumerate(prompt.facts[:most_questions], start=1):
        stated = rng is not None and rng.random() < statements
        question = coder.segment(fact.statement if stated else question_text(fact.question))
        answer = coder.answer(fact.answer)
        ids = question + answer[:-1]
        row.ids += ids
        row.positions += range(len(context), len(context) + len(ids))
        row.segment += [number] * len(ids)
        row.answer_targets += [-1] * (len(question) - 1) + answer
        row.question_targets += question[1:] + [-1] * len(answer)
        row.text_targets += [-1] * len(ids)
    return row


def stack(rows: list[Row]) -> Batch:
    """Pad rows to one length."""
    longest = max(len(row.ids) for row in rows)

    def padded(lists: list[list[int]], fill: int) -> Tensor:
        return torch.tensor([values + [fill] * (longest - len(values)) for values in lists])

    segment = padded([row.segment for row in rows], -1)
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()
    same = segment[:, :, None] == segment[:, None, :]
    chunks = (segment == 0)[:, None, :] & (segment >= 0)[:, :, None]
    return Batch(
        padded([row.ids for row in rows], 0),
        padded([row.positions for row in rows], 0),
        ((same | chunks) & causal)[:, None],
        padded([row.answer_targets for row in rows], -1),
        padded([row.question_targets for row in rows], -1),
        padded([row.text_targets for row in rows], -1),
    )


def batches(
    coder: Coder, seed: str, start: int, stage_at: Callable[[int], Stage], tokens: int, most_questions: int = 6
) -> Iterator[Batch]:
    """Batches of about `tokens` tokens from step `start` on; a step's batch depends on seed and step only."""
    step = start
    while True:
        rng = random.Random(f"batch:{seed}:{step}")
        stage = stage_at(step)
        rows: list[Row] = []
        while sum(len(row.ids) for row in rows) < 4 * tokens:
            prompt = make_prompt(rng, False, stage.mix)
            rows.append(make_row(prompt, coder, most_questions, rng, stage.statements))
        rows.sort(key=lambda row: len(row.ids))
        packs: list[list[Row]] = [[]]
        for row in rows:
            if packs[-1] and (len(packs[-1]) + 1) * len(row.ids) > tokens:
                packs.append([])
            packs[-1].append(row)
        # One pack of nearly equal lengths is used; which one is left to chance,
        # by its share of the rows, so that long prompts come as often as short ones.
        yield stack(rng.choices(packs, [len(pack) for pack in packs])[0])
        step += 1
