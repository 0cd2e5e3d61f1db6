"""The headers by which messages say that they are in a group. No code is shared with the broker."""

from __future__ import annotations

import random

KEYS: tuple[object, ...] = ("a", "a", "b", "c", 7, "7", "", True, 0.5)
NAMES = ("x-group-id", "x-group-id", "x-group-id", "JMSXGroupID", "team")
SEQUENCES = ("x-group-seq", "JMSXGroupSeq")


def group_headers(share: float, rng: random.Random) -> dict[str, object]:
    """Headers of a message; of so many of all messages they name a group, mostly."""
    if share == 0 or rng.random() >= share:
        return {}
    headers = {rng.choice(NAMES): rng.choice(KEYS)}
    if rng.random() < 0.2:
        headers[rng.choice(NAMES)] = rng.choice(KEYS[:4])
    if rng.random() < 0.2:
        headers[rng.choice(SEQUENCES)] = rng.choice((-1, -1, 1))
    return headers
