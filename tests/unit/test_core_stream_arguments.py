"""Which part of a stream a consumer's arguments mean, and what does not go together."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.streams.extent import StreamExtent, stream_extent

WHERE = "queue 's' in vhost '/'"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-stream-offset", "first"),
        ("x-stream-filter", "a"),
        ("x-stream-partition", 0),
        ("x-stream-consumer-name", "me"),
        ("x-stream-match-unfiltered", True),
    ],
)
def test_a_place_to_browse_from_does_not_go_with_arguments_of_streams(name: str, value: object) -> None:
    arguments = {"x-browse": True, "x-browse-from": "first", name: value}
    with pytest.raises(PreconditionFailed) as refusal:
        stream_extent(arguments, WHERE, 0)
    assert f"does not go with {name}" in refusal.value.text
    assert "x-browse-from" in refusal.value.text


def test_a_place_to_browse_from_alone() -> None:
    extent = stream_extent({"x-browse": True, "x-browse-from": "last"}, WHERE, 0)
    assert extent.beginning == "last"
    assert not isinstance(extent, StreamExtent)
