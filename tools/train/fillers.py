"""Sentences that say nothing about anybody: they give a chunk its length.

No sentence here holds a name, a place, a thing, or a pronoun, so that none of
them can be taken for the antecedent of anything.
"""

from __future__ import annotations

TRAIN: tuple[str, ...] = (
    "The morning was cold and the road was quiet.",
    "Rain fell for most of the week.",
    "Nobody said much about the matter.",
    "The days grew longer and the evenings warm.",
    "Everything was done with great care.",
    "Some said that the news came late.",
    "The wind turned before night.",
    "All of this was written down in the end.",
    "The weather stayed dry for once.",
    "People talked of little else for days.",
    "A letter about the matter came late.",
    "Snow lay on the ground until spring.",
    "The whole affair took less than a day.",
    "Few people knew of this at the time.",
    "The year had been a good one.",
    "No reason was given.",
    "This caused some talk but no trouble.",
    "Most of the work was done before noon.",
    "The night was long and dark.",
    "Things went on much as before.",
    "The post was slow in those days.",
    "Everybody was glad of the rest.",
    "Clouds came in from the sea.",
    "Time passed and nothing more was said.",
    "The talk was of rain and of money.",
    "So much is certain.",
    "The sun was out and the streets were full.",
    "More than one witness said so.",
    "For a week nothing else happened.",
    "At noon the rain stopped.",
    "Little of this was known before spring.",
    "The evenings were quiet and the work was slow.",
)
HELD_OUT: tuple[str, ...] = (
    "The morning was dry and the streets were quiet.",
    "Few people said much about the affair.",
    "Snow fell for most of the night.",
    "The whole matter was done before noon.",
    "Some talk of money went on for a week.",
    "The weather turned cold before spring.",
)
