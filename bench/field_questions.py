#!/usr/bin/env python3
"""Questions in the shapes that others measure with, as records for `blend eval`.

    bench/field_questions.py --shapes single,keys,values,tracking --words world --count 100 --seed 7 --out needles.jsonl
    bench/field_questions.py --shapes bridge,comparison,chain --chunks 5 --count 60 --seed 7 --out hops.jsonl

RULER's needle tasks, in chunks of filler: `single` (one needle), `keys` (a needle in every chunk, one is
asked for), `values` (one key, two values; the last is asked for), `tracking` (variables set to each other
from chunk to chunk; the value of the last is asked for). Passages with titles as in HotpotQA, 2WikiMQA and
MuSiQue, among others of the same make: `bridge` (two hops), `comparison` (two passages compared), `chain`
(three hops).

Needles come in two vocabularies: `ruler` (magic numbers of RULER's own wording) and `world`, the words and
wordings of the example model (tools/train/words.py), so that a model this small can answer some. All names
are made up; nothing is taken from those data sets.
"""
import argparse
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools" / "train"))
import words  # noqa: E402  (the example model's vocabulary; it imports nothing else)

NOISE = {
    "ruler": ["The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again."],
    "world": ["The night was long and dark.", "Snow fell for most of the night.", "Few people said much about the affair.",
              "The days grew longer and the evenings warm.", "A letter about the matter came late.",
              "Some talk of money went on for a week.", "For a week nothing else happened."],
}


def pairs(rng, first, second, n):
    """n different two-word names that training never had."""
    owned = [f"{a} {b}" for a in first for b in second if words.held_out(a, b)]
    return rng.sample(owned, n)


def noise(rng, kind, n):
    return [rng.choice(NOISE[kind]) for _ in range(n)]


def chunk_of(rng, kind, needles, filler):
    """A chunk of filler with its needles at chance places, in order."""
    sentences = noise(rng, kind, filler)
    for place, needle in zip(sorted(rng.randrange(filler + 1) for _ in needles), range(len(needles))):
        sentences.insert(place + needle, needles[needle])
    return " ".join(sentences) + "\n"


def placed(rng, kind, needles, args):
    """Chunks with each needle in one of its own, in order, the others filler alone."""
    at = sorted(rng.sample(range(args.chunks), len(needles)))
    return [chunk_of(rng, kind, [needles[at.index(i)]] if i in at else [], args.filler) for i in range(args.chunks)]


def needle_of(rng, kind, key, value):
    if kind == "ruler":
        return f"One of the magic numbers for {key} is: {value}."
    return rng.choice(["The {} costs {} coins.", "At first the {} costs {} coins.",
                       "The price of the {} was {} coins."]).format(key, value)


def question_of(kind, key):
    return f"What is the magic number for {key}?" if kind == "ruler" else f"What did the {key} cost at first?"


def keys_and_values(rng, kind, n):
    keys = pairs(rng, words.THING_FIRST, words.THING_SECOND, n)
    values = rng.sample(words.NUMBERS, n) if kind == "world" else [str(rng.randrange(1000, 10000)) for _ in range(n)]
    return keys, values


def accepted(kind, value):
    return [value, f"{value} coins"] if kind == "world" else [value]


def single(rng, kind, args):
    (key,), (value,) = keys_and_values(rng, kind, 1)
    return placed(rng, kind, [needle_of(rng, kind, key, value)], args), question_of(kind, key), accepted(kind, value)


def keys(rng, kind, args):
    names, values = keys_and_values(rng, kind, args.chunks)
    asked = rng.randrange(args.chunks)
    chunks = placed(rng, kind, [needle_of(rng, kind, k, v) for k, v in zip(names, values)], args)
    return chunks, question_of(kind, names[asked]), accepted(kind, values[asked])


def values(rng, kind, args):
    (key, other), (first, last) = keys_and_values(rng, kind, 2)
    if kind == "ruler":
        needles = [f"The first magic number for {key} is: {first}.", f"The last magic number for {key} is: {last}."]
        question = f"What is the last magic number for {key}?"
    else:
        needles = [f"The {key} costs {first} coins.", f"In the end it was sold for {last} coins."]
        question = f"What did the {key} cost in the end?"
    return placed(rng, kind, needles, args), question, accepted(kind, last)


def tracking(rng, kind, args):
    n = min(4, args.chunks)
    if kind == "ruler":
        names = ["".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(3)) for _ in range(n)]
        value = str(rng.randrange(10000, 100000))
        needles = [f"VAR {names[0]} = {value}."] + [f"VAR {b} = VAR {a}." for a, b in zip(names, names[1:])]
        return placed(rng, kind, needles, args), f"What is the value of VAR {names[-1]}?", [value]
    (thing,) = pairs(rng, words.THING_FIRST, words.THING_SECOND, 1)
    places = pairs(rng, words.PLACE_FIRST, words.PLACE_SECOND, n)
    (woman,) = pairs(rng, words.WOMEN, words.SURNAMES, 1)
    needles = [f"{woman} found the {thing} at the {places[0]}."]
    needles += [f"Then she took it to the {place}." for place in places[1:]]
    return placed(rng, kind, needles, args), f"Where is the {thing} now?", [places[-1], f"at the {places[-1]}"]


CITIES = ["Arlen", "Bexhill", "Corvane", "Dunmore", "Elsmark", "Farrow", "Glenby", "Harwick", "Ilsten", "Jorvale"]
FILMS = ["The Long Road", "Winter Light", "Seven Doors", "Blue River", "The Last Bell", "Paper Moons", "Iron Hill", "Quiet Sea"]
TITLED_FILLER = ["It is well known in the region.", "Many visitors come each year.", "It was restored some years ago.",
                 "Little else is recorded."]


def people_of(rng, n):
    return [f"{a} {b}" for a, b in zip(rng.sample(words.WOMEN + words.MEN, n), rng.sample(words.SURNAMES, n))]


def passages(rng, facts, others, args):
    """Titled passages: the facts and as many others as fill the chunks, in chance order."""
    chosen = facts + rng.sample(others, max(0, min(len(others), args.chunks - len(facts))))
    rng.shuffle(chosen)
    return [{"title": title, "text": f"{text} {rng.choice(TITLED_FILLER)}"} for title, text in chosen]


def world_of(rng):
    films, people, cities = rng.sample(FILMS, 4), people_of(rng, 4), rng.sample(CITIES, 4)
    years = rng.sample(range(1901, 1999), 4)
    rivers = rng.sample(["Tamm", "Orle", "Vesk", "Lind", "Marn"], 4)
    film = [(f, f"{f} is a film directed by {p}. It came out in {y}.") for f, p, y in zip(films, people, years)]
    person = [(p, f"{p} was born in {c}.") for p, c in zip(people, cities)]
    city = [(c, f"{c} is a town on the river {r}.") for c, r in zip(cities, rivers)]
    return film, person, city, films, cities, years, rivers


def bridge(rng, _, args):
    film, person, city, films, cities, _, _ = world_of(rng)
    ctxs = passages(rng, [film[0], person[0]], film[1:] + person[1:], args)
    return ctxs, f"Where was the director of {films[0]} born?", [cities[0]]


def comparison(rng, _, args):
    film, person, city, films, _, years, _ = world_of(rng)
    ctxs = passages(rng, film[:2], film[2:] + person, args)
    return ctxs, f"Which film came out first, {films[0]} or {films[1]}?", [films[0 if years[0] < years[1] else 1]]


def chain(rng, _, args):
    film, person, city, films, _, _, rivers = world_of(rng)
    ctxs = passages(rng, [film[0], person[0], city[0]], film[1:] + person[1:] + city[1:], args)
    return ctxs, f"On which river lies the town where the director of {films[0]} was born?", [rivers[0], f"river {rivers[0]}"]


SHAPES = {"single": single, "keys": keys, "values": values, "tracking": tracking,
          "bridge": bridge, "comparison": comparison, "chain": chain}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="single,keys,values,tracking", help=f"of {', '.join(SHAPES)}, in turn")
    parser.add_argument("--words", choices=("ruler", "world"), default="ruler", help="of needles")
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--filler", type=int, default=3, help="sentences of filler in a chunk of needles")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    shapes = args.shapes.split(",")
    if unknown := [s for s in shapes if s not in SHAPES]:
        parser.error(f"no shape {unknown[0]}; there are {', '.join(SHAPES)}")
    rng = random.Random(args.seed)
    with open(args.out, "w", encoding="utf-8") as out:
        for i in range(args.count):
            shape = shapes[i % len(shapes)]
            chunks, question, answers = SHAPES[shape](rng, args.words, args)
            key = "ctxs" if isinstance(chunks[0], dict) else "chunks"
            out.write(json.dumps({key: chunks, "question": question, "answers": answers, "kind": shape}) + "\n")


if __name__ == "__main__":
    main()
