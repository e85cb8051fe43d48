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

    asked: t.Wording  # the form of the question
    question: str
    statement: str  # that the answer completes
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

    def __init__(self, rng: random.Random, held_out: bool, named: float = 0.0) -> None:
        self.rng = rng
        self.named = named  # share of sentences that name what they would refer to
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
        return write(self.wording(which), slots, self.rng.random() < self.named)

    def fact(
        self, asked: t.Wording, stated: t.Wording, answer: str, kind: str, passages: int, **slots: Person | str
    ) -> Fact:
        """What may be asked of a thread."""
        statement = write(self.wording(stated), slots).text
        return Fact(asked, self.ask(asked, **slots), statement, answer, kind, passages)

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


def _reference(word: str, value: Person | str, slots: dict[str, Person | str], named: bool) -> str:
    lower = word.lower()
    name = value.name if isinstance(value, Person) else value
    if lower in ("role", "nick"):
        text = f"{slots[lower]}, {name}," if named else str(slots[lower])
    elif lower in ("latter", "former"):
        text = f"{lower}, {name}," if named else lower
    elif named:
        text = {"there": f"at the {name}", "it": f"the {name}", "its": f"the {name}'s"}.get(lower, name)
    elif isinstance(value, Person):
        text = lower if value.woman else {"she": "he", "her": "him"}[lower]
    else:
        text = lower
    return text[0].upper() + text[1:] if word[0].isupper() else text


def write(wording: str, slots: dict[str, Person | str], named: bool = False) -> Sentence:
    """Fill the tags of a wording; see templates.py for what they mean. `named`: refer by full names."""
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
        return _reference(word, value, slots, named)

    text = _TAG.sub(fill, wording)
    sentence.text = text[0].upper() + text[1:]
    return sentence


def keeper(cast: Cast) -> Thread:
    """Somebody works at a place; she keeps a thing there; another thing is there too."""
    p, place, x, y = cast.person(), cast.place(), cast.thing(), cast.thing()
    passages = [[cast.say(t.WORKS, P=p, L=place)], [cast.say(t.KEEPS, P=p, X=x, L=place)]]
    facts = [cast.fact(t.Q_WORKS, t.S_WORKS, place, "keeper", 1, P=p), cast.fact(t.Q_KEEPS, t.S_KEEPS, x, "keeper", 2, P=p)]
    if cast.rng.random() < 0.5:
        passages.append([cast.say(t.ALSO_THERE, Y=y, L=place)])
        facts.append(cast.fact(t.Q_ALSO, t.S_ALSO, y, "keeper", 2, L=place))
    return Thread(passages, facts)


def carry(cast: Cast) -> Thread:
    """A thing is found and then carried along, once or twice."""
    p, x, place = cast.person(), cast.thing(), cast.place()
    passages = [[cast.say(t.FOUND, P=p, X=x, L=place)]]
    facts = [
        cast.fact(t.Q_FOUND_WHAT, t.S_FOUND_WHAT, x, "carry", 1, P=p),
        cast.fact(t.Q_FOUND_AT, t.S_FOUND_AT, place, "carry", 1, X=x),
    ]
    moves = cast.rng.choice((1, 1, 2))
    for _ in range(moves):
        place = cast.place()
        passages.append([cast.say(t.CARRIED, P=p, X=x, M=place)])
    facts.append(cast.fact(t.Q_NOW_AT, t.S_NOW_AT, place, "carry", 1 + moves, X=x))
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
            cast.fact(t.Q_FIRST_PRICE, t.S_FIRST_PRICE, f"{first} coins", "price", 1, X=x),
            cast.fact(t.Q_LAST_PRICE, t.S_LAST_PRICE, f"{last} coins", "price", 1 + updates, X=x),
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
        facts.append(cast.fact(t.Q_SENT_WHERE, t.S_SENT_WHERE, goal, "pair", 2, P=person))
    return Thread(passages, facts)


def role(cast: Cast) -> Thread:
    """Somebody has a trade; later only the trade is named."""
    p, x, trade = cast.person(), cast.thing(), cast.word(words.ROLES)
    return Thread(
        [[cast.say(t.HAS_ROLE, P=p, role=trade)], [cast.say(t.ROLE_BOUGHT, P=p, role=trade, X=x)]],
        [cast.fact(t.Q_TRADE, t.S_TRADE, trade, "role", 1, P=p), cast.fact(t.Q_ROLE_DID, t.S_ROLE_DID, x, "role", 2, P=p)],
    )


def nickname(cast: Cast) -> Thread:
    """Somebody has a nickname; later only the nickname is used."""
    p, x, nick = cast.person(), cast.thing(), cast.word(words.NICKNAMES)
    return Thread(
        [[cast.say(t.HAS_NICK, P=p, nick=nick)], [cast.say(t.NICK_SOLD, P=p, nick=nick, X=x)]],
        [cast.fact(t.Q_NICK_IS, t.S_NICK_IS, nick, "nickname", 1, P=p), cast.fact(t.Q_NICK_DID, t.S_NICK_DID, x, "nickname", 2, P=p)],
    )


def lodger(cast: Cast) -> Thread:
    """Somebody lives at a place, with a friend, who sometimes keeps a thing there."""
    p, q, place = cast.person(), cast.person(), cast.place()
    passages = [[cast.say(t.LIVES, P=p, L=place)], [cast.say(t.SHARES, P=p, Q=q, L=place)]]
    facts = [cast.fact(t.Q_LIVES, t.S_LIVES, place, "lodger", 1, P=p), cast.fact(t.Q_SHARES, t.S_SHARES, q.name, "lodger", 2, P=p)]
    if cast.rng.random() < 0.4:
        x = cast.thing()
        passages.append([cast.say(t.KEEPS, P=q, X=x, L=place)])
        facts.append(cast.fact(t.Q_KEEPS, t.S_KEEPS, x, "lodger", 2, P=q))
    return Thread(passages, facts)


def register(cast: Cast) -> Thread:
    """A thing has a page in a register; that page names its owner."""
    p, x = cast.person(), cast.thing()
    return Thread(
        [[cast.say(t.HAS_PAGE, X=x)], [cast.say(t.PAGE_NAMES, P=p, X=x)]],
        [cast.fact(t.Q_OWNER, t.S_OWNER, p.name, "register", 2, X=x)],
    )


def cleaning(cast: Cast) -> Thread:
    """A single passage that needs no other: a distractor that may be asked too."""
    p, x = cast.person(), cast.thing()
    return Thread([[cast.say(t.WASHED, P=p, X=x)]], [cast.fact(t.Q_CLEANED, t.S_CLEANED, x, "cleaning", 1, P=p)])


Builder = Callable[[Cast], Thread]

BUILDERS: tuple[tuple[Builder, float], ...] = (
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
