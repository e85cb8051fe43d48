"""The sentences of the world, by what they say; each list has a held-out tail.

A tag `{P}` names an entity by its slot; `{she:P}` refers back to it without
naming it. Words of reference are: she, her (person), there, that place (place),
it, its (thing), latter, former (a pair of persons), role, nick.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """Ways to say one thing: those for training and those held out."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]

    def of(self, is_held_out: bool) -> tuple[str, ...]:
        """The wordings of one side of the split."""
        return self.held_out if is_held_out else self.train


WORKS = Wording(
    (
        "{P} works at the {L}.",
        "{P} took a post at the {L}.",
        "{P} has a desk at the {L}.",
        "Since spring {P} works at the {L}.",
        "{P} was hired at the {L}.",
        "For a year {P} had a post at the {L}.",
    ),
    ("Since spring {P} has a desk at the {L}.", "For a year {P} works at the {L}."),
)
KEEPS = Wording(
    (
        "{She:P} keeps the {X} {there:L}.",
        "{She:P} looks after the {X} {there:L}.",
        "{There:L} {she:P} keeps the {X}.",
        "Since then {she:P} keeps the {X} {there:L}.",
        "As always {she:P} guards the {X} {there:L}.",
        "{There:L} {she:P} looks after the {X}.",
        "For years {she:P} guards the {X} {there:L}.",
        "{There:L} the {X} is kept by {her:P}.",
        "The {X} {there:L} is kept by {her:P}.",
    ),
    (
        "Since then {she:P} looks after the {X} {there:L}.",
        "{There:L} {she:P} guards the {X}.",
        "As always {she:P} keeps the {X} {there:L}.",
    ),
)
ALSO_THERE = Wording(
    (
        "The {Y} was left {there:L} too.",
        "The {Y} stands {there:L} as well.",
        "{There:L} the {Y} was put on a shelf.",
        "Since then the {Y} stands {there:L}.",
        "The {Y} was put {there:L} for good.",
    ),
    ("The {Y} was left {there:L} for good.", "{There:L} the {Y} was put as well."),
)
FOUND = Wording(
    (
        "{P} found the {X} at the {L}.",
        "{P} bought the {X} at the {L}.",
        "One day {P} found the {X} at the {L}.",
        "Last week {P} bought the {X} at the {L}.",
    ),
    ("Last week {P} found the {X} at the {L}.", "One day {P} bought the {X} at the {L}."),
)
CARRIED = Wording(
    (
        "{She:P} carried {it:X} to the {M}.",
        "{She:P} took {it:X} to the {M}.",
        "The next day {she:P} brought {it:X} to the {M}.",
        "From there {she:P} carried {it:X} to the {M}.",
        "Then {she:P} took {it:X} to the {M}.",
        "In the evening {she:P} sent {it:X} to the {M}.",
        "Then {she:P} sent {it:X} to the {M}.",
    ),
    (
        "In the evening {she:P} took {it:X} to the {M}.",
        "The next day {she:P} carried {it:X} to the {M}.",
        "Then {she:P} brought {it:X} to the {M}.",
    ),
)
COSTS = Wording(
    (
        "The {X} costs {n} coins.",
        "At first the {X} costs {n} coins.",
        "The price of the {X} was {n} coins.",
        "In spring the price of the {X} was {n} coins.",
        "At first the price of the {X} was {n} coins.",
    ),
    ("In spring the {X} costs {n} coins.",),
)
NOW_COSTS = Wording(
    (
        "Then {its:X} price rose to {m} coins.",
        "After that {its:X} price fell to {m} coins.",
        "Later {it:X} was sold for {m} coins.",
        "{Its:X} price then rose to {m} coins.",
        "In the end {it:X} was sold for {m} coins.",
        "{Its:X} price was later set at {m} coins.",
    ),
    (
        "In the end {its:X} price rose to {m} coins.",
        "After that {it:X} was sold for {m} coins.",
        "{Its:X} price later fell to {m} coins.",
    ),
)
PAIR = Wording(
    (
        "{P} and {Q} asked for work.",
        "Two people came that day: {P} and {Q}.",
        "{P} and {Q} came to town together.",
        "One day {P} and {Q} asked for work.",
        "Last week {P} and {Q} came to town.",
    ),
    ("Last week {P} and {Q} asked for work.", "One day {P} and {Q} came to town."),
)
LATTER_SENT = Wording(
    (
        "The {latter:Q} was sent to the {L}.",
        "In the end the {latter:Q} was sent to the {L}.",
        "They sent the {latter:Q} to the {L}.",
        "Then the {latter:Q} was sent to the {L}.",
        "In the end they sent the {latter:Q} to the {L}.",
    ),
    ("Then they sent the {latter:Q} to the {L}.",),
)
FORMER_SENT = Wording(
    (
        "The {former:P} was sent to the {M}.",
        "In the end the {former:P} was sent to the {M}.",
        "They sent the {former:P} to the {M}.",
        "Then the {former:P} was sent to the {M}.",
        "In the end they sent the {former:P} to the {M}.",
    ),
    ("Then they sent the {former:P} to the {M}.",),
)
HAS_ROLE = Wording(
    (
        "{P} is the new {role}.",
        "{P} became the {role} in spring.",
        "{P} works as the {role}.",
        "In spring {P} became the new {role}.",
    ),
    ("In spring {P} became the {role}.", "{P} works as the new {role}."),
)
ROLE_BOUGHT = Wording(
    (
        "The {role:P} repaired the {X}.",
        "One day the {role:P} repaired the {X}.",
        "After that the {role:P} lost the {X}.",
        "The {role:P} has lost the {X}.",
        "In the end the {role:P} repaired the {X}.",
    ),
    ("After that the {role:P} repaired the {X}.", "In the end the {role:P} lost the {X}."),
)
HAS_NICK = Wording(
    (
        "Friends call {P} by the name of {nick}.",
        "{P} is known as {nick}.",
        "Everybody calls {P} just {nick}.",
        "In town {P} is known as {nick}.",
        "Friends call {P} just {nick}.",
    ),
    ("In town everybody calls {P} just {nick}.",),
)
NICK_SOLD = Wording(
    (
        "{Nick:P} painted the {X}.",
        "{Nick:P} has stolen the {X}.",
        "One day {Nick:P} painted the {X}.",
        "In the end {Nick:P} painted the {X}.",
        "It was {Nick:P} who has stolen the {X}.",
    ),
    ("It was {Nick:P} who painted the {X}.", "In the end {Nick:P} has stolen the {X}."),
)
LIVES = Wording(
    (
        "{P} lives at the {L}.",
        "{P} has two rooms at the {L}.",
        "Since spring {P} lives at the {L}.",
        "{P} lives in peace at the {L}.",
        "For years {P} lives at the {L}.",
    ),
    ("Since spring {P} has two rooms at the {L}.", "For years {P} has two rooms at the {L}."),
)
SHARES = Wording(
    (
        "{She:P} shares a room with {Q}.",
        "Since then {she:P} shares a room with {Q}.",
        "In the evening {she:P} plays cards with {Q}.",
        "{She:P} often plays cards with {Q}.",
        "{There:L} {she:P} often plays cards with {Q}.",
    ),
    ("{There:L} {she:P} shares a room with {Q}.", "Since then {she:P} often plays cards with {Q}."),
)
HAS_PAGE = Wording(
    (
        "The {X} has a page in the register.",
        "In the register the {X} has a page.",
        "A page for the {X} is in the register.",
        "The register has a long page for the {X}.",
    ),
    ("In the register the {X} has a long page.",),
)
PAGE_NAMES = Wording(
    (
        "{Its:X} owner on that page is {P}.",
        "It says in the book that {its:X} owner is {P}.",
        "By law {its:X} owner is {P}.",
        "That page says that {its:X} owner is {P}.",
        "{Its:X} owner by law is {P}.",
    ),
    ("By law {its:X} owner on that page is {P}.", "It says on that page that {its:X} owner is {P}."),
)
WASHED = Wording(
    (
        "{P} cleaned the {X}.",
        "One day {P} cleaned the {X}.",
        "{P} cleaned the {X} with care.",
        "Last week {P} cleaned the {X}.",
        "In the end {P} cleaned the {X}.",
    ),
    ("In the end {P} cleaned the {X} with care.",),
)

# Before a question may stand one of these. Each question is held out after one opener in four.
OPENERS: tuple[str, ...] = ("", "Tell me: ", "Please say: ", "One more thing: ", "In a word: ", "Think well: ")

# Questions. Each names what an earlier passage names and asks for what is said of it later.
Q_WORKS = Wording(("Where does {P} work?", "At what place does {P} work?"), ("Where is it that {P} works?",))
Q_KEEPS = Wording(("What does {P} keep?", "What does {P} look after?"), ("What is it that {P} keeps?",))
Q_ALSO = Wording(("What was left at the {L}?", "What stands at the {L}?"), ("What is it that stands at the {L}?",))
Q_FOUND_WHAT = Wording(("What did {P} find?", "What did {P} get?"), ("What was it that {P} did find?",))
Q_FOUND_AT = Wording(("Where was the {X} found?", "At what place was the {X} found?"), ("Where was it that the {X} was found?",))
Q_NOW_AT = Wording(("Where is the {X} now?", "At what place is the {X} now?"), ("Where is it that the {X} is now?",))
Q_FIRST_PRICE = Wording(
    ("What did the {X} cost at first?", "What was the first price of the {X}?"), ("At first what did the {X} cost?",)
)
Q_LAST_PRICE = Wording(
    ("What did the {X} cost in the end?", "What was the last price of the {X}?"), ("In the end what did the {X} cost?",)
)
Q_SENT_WHERE = Wording(("Where was {P} sent?", "At what place had {P} to go?"), ("Where was it that {P} was sent?",))
Q_TRADE = Wording(("What is the trade of {P}?", "What trade does {P} have?"), ("What is it that is the trade of {P}?",))
Q_ROLE_DID = Wording(("What did {P} have to repair?", "What did {P} have?"), ("What was it that {P} did repair?",))
Q_NICK_IS = Wording(("By what name is {P} known?", "What do friends call {P}?"), ("By what name do friends call {P}?",))
Q_NICK_DID = Wording(("What did {P} paint?", "What did {P} touch?"), ("What was it that {P} did paint?",))
Q_LIVES = Wording(("Where does {P} live?", "At what place does {P} live?"), ("Where is it that {P} lives?",))
Q_SHARES = Wording(("Who is a friend of {P}?", "Who is often with {P}?"), ("Who is it that is often with {P}?",))
Q_OWNER = Wording(("Who owns the {X}?", "Who is the owner of the {X}?"), ("Who is it that owns the {X}?",))
Q_CLEANED = Wording(("What did {P} clean?", "What did {P} make clean?"), ("What was it that {P} did clean?",))

# The same asked as a statement to be completed. Word for word it stands nowhere in the prompt as
# soon as a reference is in the way, but often does where none is, which is what training begins with.
S_WORKS = Wording(("{P} works at the",), ("Since spring {P} works at the",))
S_KEEPS = Wording(("{P} keeps the",), ("As always {P} keeps the",))
S_ALSO = Wording(("At the {L} stands the",), ("Since then at the {L} stands the",))
S_FOUND_WHAT = Wording(("{P} found the",), ("One day {P} found the",))
S_FOUND_AT = Wording(("The {X} was found at the",), ("One day the {X} was found at the",))
S_NOW_AT = Wording(("Now the {X} is at the",), ("In the end the {X} is at the",))
S_FIRST_PRICE = Wording(("At first the {X} costs",), ("In spring the {X} costs",))
S_LAST_PRICE = Wording(("In the end the {X} was sold for",), ("Later the {X} was sold for",))
S_SENT_WHERE = Wording(("{P} was sent to the",), ("In the end {P} was sent to the",))
S_TRADE = Wording(("{P} works as the",), ("In town {P} works as the",))
S_ROLE_DID = Wording(("{P} repaired the",), ("One day {P} repaired the",))
S_NICK_IS = Wording(("{P} is known as",), ("In town {P} is known as",))
S_NICK_DID = Wording(("{P} painted the",), ("One day {P} painted the",))
S_LIVES = Wording(("{P} lives at the",), ("Since spring {P} lives at the",))
S_SHARES = Wording(("{P} shares a room with",), ("Since then {P} shares a room with",))
S_OWNER = Wording(("The owner of the {X} is",), ("By law the owner of the {X} is",))
S_CLEANED = Wording(("{P} cleaned the",), ("One day {P} cleaned the",))
