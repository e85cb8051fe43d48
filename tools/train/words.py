"""The words the generated world is made of, and how its entities are split.

An entity (person, place, thing) is always two words, and the split works on
the pairs: a training prompt never contains a pair that the held-out set owns,
although both words of the pair occur in training, in other pairs.
"""

from __future__ import annotations

import hashlib

WOMEN: tuple[str, ...] = (
    "Mara", "Lena", "Ilse", "Nora", "Petra", "Greta", "Hanna", "Freya", "Clara", "Edith", "Tessa", "Wilma",
    "Agnes", "Berta", "Celia", "Dora", "Elsa", "Fiona", "Gilda", "Heidi",
)
MEN: tuple[str, ...] = (
    "Oren", "Piet", "Jonas", "Karl", "Anton", "Bruno", "Casper", "David", "Emil", "Felix",
    "Georg", "Hugo", "Ivan", "Jakob", "Klaus", "Leon", "Martin", "Nils", "Oscar", "Pavel",
    "Quentin", "Ralph", "Simon", "Tobias", "Ulrich", "Victor", "Walter", "Xaver", "Yannick",
    "Adam", "Boris", "Conrad", "Dirk", "Egon", "Fritz", "Gustav",
)
SURNAMES: tuple[str, ...] = (
    "Venn", "Holt", "Brandt", "Sorel", "Tamm", "Kessel", "Lund", "Marsh", "Novak", "Ostin", "Perrin", "Quist",
    "Rask", "Stroud", "Tolland", "Umber", "Vance", "Weller", "Yates", "Zorn", "Abbot", "Bexley", "Corley",
    "Dunmore",
)
PLACE_FIRST: tuple[str, ...] = (
    "harbour", "river", "north", "south", "upper", "lower", "market", "castle", "garden", "forest", "meadow",
    "hill", "lake", "island", "abbey", "bridge", "canal", "cliff", "desert", "eastern", "western", "village",
    "city", "royal",
)
PLACE_SECOND: tuple[str, ...] = (
    "office", "mill", "school", "library", "station", "chapel", "tower", "farm", "bakery", "museum",
    "hospital", "theatre", "inn", "archive", "factory", "barn", "court", "workshop", "cottage", "academy",
)
THING_FIRST: tuple[str, ...] = (
    "red", "blue", "green", "brass", "silver", "golden", "wooden", "leather", "iron", "glass", "copper",
    "velvet", "striped", "painted", "broken", "heavy", "tiny", "round", "square", "carved", "white", "black",
    "yellow", "purple",
)
THING_SECOND: tuple[str, ...] = (
    "ledger", "lamp", "clock", "key", "box", "map", "violin", "basket", "mirror", "chair", "kettle", "trunk",
    "globe", "flute", "statue", "carpet", "helmet", "anchor", "lantern", "drum", "vase", "ladder", "saddle",
    "telescope",
)
ROLES: tuple[str, ...] = (
    "clerk", "miller", "baker", "doctor", "teacher", "painter", "gardener", "pilot", "tailor", "weaver",
    "porter", "judge",
)
NICKNAMES: tuple[str, ...] = (
    "Finch", "Badger", "Sparrow", "Otter", "Falcon", "Thistle", "Pepper", "Comet", "Raven", "Bramble",
    "Shadow", "Clover",
)
NUMBERS: tuple[str, ...] = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty",
)

# One pair of words in this many belongs to the held-out set.
HELD_OUT_ONE_IN = 6


def held_out(first: str, second: str) -> bool:
    """Say whether the entity `first second` may only occur in held-out prompts."""
    digest = hashlib.sha256(f"{first} {second}".encode()).digest()
    return digest[0] % HELD_OUT_ONE_IN == 0
