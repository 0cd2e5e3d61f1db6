"""The invariants by name, the check of a single invariant, and the counts of all checks."""

from __future__ import annotations

from collections import Counter

NAMES = {
    "A1": "what was altered holds after a restart",
    "D1": "strict order",
    "D2": "visible and in time",
    "D3": "consumer priority",
    "D4": "one consumer at a time",
    "D5": "one consumer at a time for each group",
    "D6": "browsers see once",
    "D7": "windows",
    "D8": "the most urgent first",
    "D9": "redelivered and count",
    "F5": "who is called does not call back",
    "G1": "the messages of a group in their order",
    "I1": "conservation",
    "I2": "order and counts",
    "I3": "ownership",
    "I4": "nothing hidden behind a cursor",
    "I5": "states and lists",
    "I6": "who is relied upon has a turn coming",
    "I7": "groups are kept while they are needed",
    "I8": "no dead entry is reachable",
    "J1": "the journal tells all that happens, once",
    "K1": "where nothing is consumed nobody takes anything",
    "L1": "leases end in time",
    "N1": "the end is told truthfully",
    "O1": "operations are done or refused as they must be",
    "O2": "what an operation gives back is as it was",
    "Q1": "no lost wake-up",
    "Q2": "nobody notified at rest",
    "Q3": "browsers have seen all",
    "Q4": "nothing dropped that could be had",
    "R1": "what is durable is there after a kill",
    "R2": "what was settled durably does not come back",
    "R3": "moves and transactions are whole",
    "R4": "order after a restart",
    "R5": "redelivered and count after a restart",
    "S1": "what goes in slices goes in its order",
    "S2": "what goes in slices is done when its turns have come",
    "S3": "credit comes back with what has left, once",
    "T1": "delayed messages wait in the order of their dates",
    "T2": "delayed messages come at their date, once",
    "T3": "delayed messages wait on after a restart",
    "U1": "no message twice",
    "U2": "what was taken is known after a restart",
    "U3": "a duplicate is confirmed when what it repeats is on disk",
    "W1": "one arrival wakes one at most",
    "W2": "empty wake-ups are paid for",
    "W3": "who is suspended is not woken",
    "Z1": "what waits to be dead-lettered is tried in the order of dying",
    "Z2": "what waits to be dead-lettered is counted",
    "Z3": "what waits to be dead-lettered gets the room that there is",
    "Z4": "what waits to be dead-lettered does so after a restart",
}


class InvariantError(AssertionError):
    """A violated invariant. `check` is its name."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check


class Seen(Counter[str]):
    """The counts of each feature, transition and check."""

    def __call__(self, name: str) -> None:
        self[name] += 1


def check(seen: Seen, name: str, holds: bool, text: str = "") -> None:
    """Check an invariant; `name` is one of NAMES."""
    if not holds:
        raise InvariantError(name, f"{NAMES[name]}: {text}")
    seen[f"check: {name}"] += 1
