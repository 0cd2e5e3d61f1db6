"""Field tables written are read back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.amqp091.fields import Reader
from protocol.amqp091.table import encode_table

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4))
)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_what_is_written_is_read(table: dict[str, object]) -> None:
    assert Reader(encode_table(table)).table() == table


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"": 1}, "has 0 bytes"),
        ({"n" * 256: 1}, "has 256 bytes"),
        ({"n": 2**63}, "does not fit into 64 bits"),
        ({"n": [{"m": object()}]}, "cannot hold"),
        ({"n": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_what_cannot_be_written(table: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode_table(table)
