"""Threads: one to three passages about the same people, places and things.

Each builder draws entities, writes its passages with references that only an
earlier passage resolves, and lists the facts that may be asked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import templates as t
import words

_TAG = re.compile(r"\{(\w+)(?::(\w+))?\}")


@dataclass(frozen=True)
class Person:
    """A person: the two words of the name and the pronoun."""

    name: str
    woman: bool


@dataclass
class Sentence:
    """One sentence with what it refers back to and what it names, as (type, entity)."""

    text: str
    refers: list[tuple[str, str]] = field(default_factory=list)
    names: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Fact:
    """A question with its answer; `passages` counts those needed to answer it."""

    question: str
    answer: str
    kind: str
    passages: int


@dataclass
class Thread:
    """Passages in their order (each a list of sentences) and the facts in them."""

    passages: list[list[Sentence]]
    facts: list[Fact]


class Cast:
    """Draws entities for one prompt; no word serves twice within it."""

    def __init__(self, rng: random.Random, held_out: bool) -> None:
        self.rng = rng
        self.held_out = held_out
        self._used: set[str] = set()

    def remember(self) -> frozenset[str]:
        """The words in use now."""
        return frozenset(self._used)

    def forget_since(self, before: frozenset[str]) -> None:
        """Free the words taken since `remember`."""
        self._used = set(before)

    def _pair(self, firsts: tuple[str, ...], seconds: tuple[str, ...]) -> tuple[str, str]:
        for _ in range(10000):
            first, second = self.rng.choice(firsts), self.rng.choice(seconds)
            if first in self._used or second in self._used:
                continue
            if words.held_out(first, second) == self.held_out:
                self._used |= {first, second}
                return first, second
        raise RuntimeError("the word lists are too short for this prompt")

    def person(self, woman: bool | None = None) -> Person:
        """A person not met yet in this prompt."""
        is_woman = self.rng.random() < 0.5 if woman is None else woman
        first, last = self._pair(words.WOMEN if is_woman else words.MEN, words.SURNAMES)
        return Person(f"{first} {last}", is_woman)

    def place(self) -> str:
        """A place not met yet in this prompt."""
        return " ".join(self._pair(words.PLACE_FIRST, words.PLACE_SECOND))

    def thing(self) -> str:
        """A thing not met yet in this prompt."""
        return " ".join(self._pair(words.THING_FIRST, words.THING_SECOND))

    def word(self, choices: tuple[str, ...]) -> str:
        """A single word (role, nickname, number) not met yet in this prompt."""
        word = self.rng.choice([w for w in choices if w not in self._used])
        self._used.add(word)
        return word

    def wording(self, which: t.Wording) -> str:
        """One wording of this side of the split."""
        return self.rng.choice(which.of(self.held_out))

    def say(self, which: t.Wording, **slots: Person | str) -> Sentence:
        """Write a sentence and note its references and names."""
        return write(self.wording(which), slots)

    def ask(self, which: t.Wording, **slots: Person | str) -> str:
        """Write a question: an opener and a wording, a pair of this side of the split."""
        cores = which.train + which.held_out
        choices = [(opener, core) for opener in t.OPENERS for core in cores]
        opener, core = self.rng.choice([c for c in choices if held_out_question(*c) == self.held_out])
        text = write(core, slots).text
        return opener + text[0].lower() + text[1:] if opener else text


def held_out_question(opener: str, core: str) -> bool:
    """Say whether a question in these words belongs to the held-out set."""
    return (t.OPENERS.index(opener) + len(core)) % 4 == 0


def _type_of(slot: str, value: Person | str) -> str:
    if isinstance(value, Person):
        return "woman" if value.woman else "man"
    return "place" if slot in "LM" else "thing" if slot in "XY" else "word"


def _reference(word: str, value: Person | str, slots: dict[str, Person | str]) -> str:
    lower = word.lower()
    if isinstance(value, Person) and lower in ("she", "her"):
        text = {"she": "she", "her": "her"}[lower] if value.woman else {"she": "he", "her": "him"}[lower]
    elif lower in ("role", "nick"):
        text = str(slots[lower])
        return text
    else:
        text = lower
    return text.capitalize() if word[0].isupper() else text


def write(wording: str, slots: dict[str, Person | str]) -> Sentence:
    """Fill the tags of a wording; see templates.py for what they mean."""
    sentence = Sentence("")

    def fill(match: re.Match[str]) -> str:
        word, slot = match.groups()
        if slot is None:
            value = slots[word]
            name = value.name if isinstance(value, Person) else value
            sentence.names.append((_type_of(word, value), name))
            return name
        value = slots[slot]
        name = value.name if isinstance(value, Person) else value
        if word.lower() in ("latter", "former"):
            sentence.refers.append(("pair", name))
        elif word.lower() in ("role", "nick"):
            sentence.refers.append(("word", str(slots[word.lower()])))
        else:
            sentence.refers.append((_type_of(slot, value), name))
        return _reference(word, value, slots)

    text = _TAG.sub(fill, wording)
    sentence.text = text[0].upper() + text[1:]
    return sentence


def keeper(cast: Cast) -> Thread:
    """Somebody works at a place; she keeps a thing there; another thing is there too."""
    p, place, x, y = cast.person(), cast.place(), cast.thing(), cast.thing()
    passages = [[cast.say(t.WORKS, P=p, L=place)], [cast.say(t.KEEPS, P=p, X=x, L=place)]]
    facts = [Fact(cast.ask(t.Q_WORKS, P=p), place, "keeper", 1), Fact(cast.ask(t.Q_KEEPS, P=p), x, "keeper", 2)]
    if cast.rng.random() < 0.5:
        passages.append([cast.say(t.ALSO_THERE, Y=y, L=place)])
        facts.append(Fact(cast.ask(t.Q_ALSO, L=place), y, "keeper", 2))
    return Thread(passages, facts)


def carry(cast: Cast) -> Thread:
    """A thing is found and then carried along, once or twice."""
    p, x, place = cast.person(), cast.thing(), cast.place()
    passages = [[cast.say(t.FOUND, P=p, X=x, L=place)]]
    facts = [
        Fact(cast.ask(t.Q_FOUND_WHAT, P=p), x, "carry", 1),
        Fact(cast.ask(t.Q_FOUND_AT, X=x), place, "carry", 1),
    ]
    moves = cast.rng.choice((1, 1, 2))
    for _ in range(moves):
        place = cast.place()
        passages.append([cast.say(t.CARRIED, P=p, X=x, M=place)])
    facts.append(Fact(cast.ask(t.Q_NOW_AT, X=x), place, "carry", 1 + moves))
    return Thread(passages, facts)


def price(cast: Cast) -> Thread:
    """A price, updated later without naming the thing again."""
    x, first = cast.thing(), cast.word(words.NUMBERS)
    passages = [[cast.say(t.COSTS, X=x, n=first)]]
    last = first
    updates = cast.rng.choice((1, 1, 2))
    for _ in range(updates):
        last = cast.word(words.NUMBERS)
        passages.append([cast.say(t.NOW_COSTS, X=x, m=last)])
    return Thread(
        passages,
        [
            Fact(cast.ask(t.Q_FIRST_PRICE, X=x), f"{first} coins", "price", 1),
            Fact(cast.ask(t.Q_LAST_PRICE, X=x), f"{last} coins", "price", 1 + updates),
        ],
    )


def pair(cast: Cast) -> Thread:
    """Two people, then "the latter" and sometimes "the former"."""
    p, q, place, other = cast.person(), cast.person(), cast.place(), cast.place()
    passages = [[cast.say(t.PAIR, P=p, Q=q)]]
    facts: list[Fact] = []
    ends = [(t.LATTER_SENT, q, place, "L"), (t.FORMER_SENT, p, other, "M")]
    cast.rng.shuffle(ends)
    for which, person, goal, slot in ends[: cast.rng.choice((1, 2))]:
        passages.append([cast.say(which, P=p, Q=q, **{slot: goal})])
        facts.append(Fact(cast.ask(t.Q_SENT_WHERE, P=person), goal, "pair", 2))
    return Thread(passages, facts)


def role(cast: Cast) -> Thread:
    """Somebody has a trade; later only the trade is named."""
    p, x, trade = cast.person(), cast.thing(), cast.word(words.ROLES)
    return Thread(
        [[cast.say(t.HAS_ROLE, P=p, role=trade)], [cast.say(t.ROLE_BOUGHT, P=p, role=trade, X=x)]],
        [Fact(cast.ask(t.Q_TRADE, P=p), trade, "role", 1), Fact(cast.ask(t.Q_ROLE_DID, P=p), x, "role", 2)],
    )


def nickname(cast: Cast) -> Thread:
    """Somebody has a nickname; later only the nickname is used."""
    p, x, nick = cast.person(), cast.thing(), cast.word(words.NICKNAMES)
    return Thread(
        [[cast.say(t.HAS_NICK, P=p, nick=nick)], [cast.say(t.NICK_SOLD, P=p, nick=nick, X=x)]],
        [Fact(cast.ask(t.Q_NICK_IS, P=p), nick, "nickname", 1), Fact(cast.ask(t.Q_NICK_DID, P=p), x, "nickname", 2)],
    )


def lodger(cast: Cast) -> Thread:
    """Somebody lives at a place, with a friend, who sometimes keeps a thing there."""
    p, q, place = cast.person(), cast.person(), cast.place()
    passages = [[cast.say(t.LIVES, P=p, L=place)], [cast.say(t.SHARES, P=p, Q=q, L=place)]]
    facts = [Fact(cast.ask(t.Q_LIVES, P=p), place, "lodger", 1), Fact(cast.ask(t.Q_SHARES, P=p), q.name, "lodger", 2)]
    if cast.rng.random() < 0.4:
        x = cast.thing()
        passages.append([cast.say(t.KEEPS, P=q, X=x, L=place)])
        facts.append(Fact(cast.ask(t.Q_KEEPS, P=q), x, "lodger", 2))
    return Thread(passages, facts)


def register(cast: Cast) -> Thread:
    """A thing has a page in a register; that page names its owner."""
    p, x = cast.person(), cast.thing()
    return Thread(
        [[cast.say(t.HAS_PAGE, X=x)], [cast.say(t.PAGE_NAMES, P=p, X=x)]],
        [Fact(cast.ask(t.Q_OWNER, X=x), p.name, "register", 2)],
    )


def cleaning(cast: Cast) -> Thread:
    """A single passage that needs no other: a distractor that may be asked too."""
    p, x = cast.person(), cast.thing()
    return Thread([[cast.say(t.WASHED, P=p, X=x)]], [Fact(cast.ask(t.Q_CLEANED, P=p), x, "cleaning", 1)])


BUILDERS: tuple[tuple[Callable[[Cast], Thread], float], ...] = (
    (keeper, 2.0),
    (carry, 2.0),
    (price, 1.5),
    (pair, 1.2),
    (role, 1.0),
    (nickname, 1.0),
    (lodger, 1.5),
    (register, 1.0),
    (cleaning, 1.0),
)
