"""The tables of connection and channel states: transitions, and refused methods."""

import pytest

from protocol.amqp091 import connection as states
from protocol.amqp091 import constants as c
from protocol.amqp091.connection import CHANNEL_TRANSITIONS, TRANSITIONS, advance, advance_channel
from protocol.errors import CHANNEL_ERROR, COMMAND_INVALID, ProtocolError

STATES = {
    states.STARTING,
    states.AUTHENTICATING,
    states.SECURING,
    states.TUNING,
    states.TUNED,
    states.OPEN,
    states.CLOSING,
    states.CLOSED,
}
CHANNEL_STATES = {states.CHANNEL_CLOSED, states.CHANNEL_OPEN, states.CHANNEL_CLOSING}
METHODS = [value for name, value in vars(c).items() if name.startswith("CONNECTION_")]


def reached(start: str) -> set[str]:
    """Every state that some inputs lead to."""
    found, new = {start}, {start}
    while new:
        new = {after for (before, _), after in TRANSITIONS.items() if before in new} - found
        found |= new
    return found


def test_every_state_is_reached_and_every_one_can_end() -> None:
    assert reached(states.STARTING) == STATES
    for state in STATES:
        assert states.CLOSED in reached(state)


def test_nothing_follows_the_end() -> None:
    assert not [state for state, _ in TRANSITIONS if state == states.CLOSED]


def test_every_state_before_the_end_can_fail() -> None:
    failing = {state for state, given in TRANSITIONS if given == states.ERROR}
    assert failing == STATES - {states.CLOSING, states.CLOSED}


def test_the_only_way_to_open() -> None:
    state = states.STARTING
    for given in (c.CONNECTION_START_OK, states.AUTHENTICATED, c.CONNECTION_TUNE_OK, c.CONNECTION_OPEN):
        assert [known for (before, known), after in TRANSITIONS.items() if before == state != after].count(
            given
        ) == 1
        state = advance(state, given)
    assert state == states.OPEN
    ways = [key for key, after in TRANSITIONS.items() if after == states.OPEN and key[0] != states.OPEN]
    assert ways == [(states.TUNED, c.CONNECTION_OPEN)]


@pytest.mark.parametrize("state", sorted(STATES))
@pytest.mark.parametrize("method", METHODS)
def test_a_method_out_of_turn_is_refused(state: str, method: int) -> None:
    if (state, method) in TRANSITIONS:
        assert advance(state, method) in STATES
        return
    with pytest.raises(ProtocolError) as refused:
        advance(state, method)
    assert refused.value.code == COMMAND_INVALID
    assert refused.value.method == method
    assert state in refused.value.text


def test_channels_open_fail_and_close() -> None:
    assert {state for state, _ in CHANNEL_TRANSITIONS} == CHANNEL_STATES
    assert set(CHANNEL_TRANSITIONS.values()) == CHANNEL_STATES
    state = advance_channel(states.CHANNEL_CLOSED, c.CHANNEL_OPEN)
    state = advance_channel(state, states.ERROR)
    assert advance_channel(state, c.CHANNEL_OPEN) == state, "dropped like everything else"
    assert advance_channel(state, c.CHANNEL_CLOSE_OK) == states.CHANNEL_CLOSED


@pytest.mark.parametrize(
    ("state", "given", "text"),
    [
        (states.CHANNEL_OPEN, c.CHANNEL_OPEN, "second 'channel.open' seen"),
        (states.CHANNEL_OPEN, c.CHANNEL_CLOSE_OK, "expected 'channel.open'"),
        (states.CHANNEL_CLOSED, c.CHANNEL_CLOSE, "expected 'channel.open'"),
    ],
)
def test_refused_methods_of_channels(state: int, given: int, text: str) -> None:
    with pytest.raises(ProtocolError, match=text) as refused:
        advance_channel(state, given)
    assert refused.value.code == CHANNEL_ERROR
