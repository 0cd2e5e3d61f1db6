"""CC, BCC and user-id: properties of a message that the broker acts on when it is published."""

import pytest
from pamqp.commands import Basic

from tests.support.amqp091.peer import Connector, PeerChannel


@pytest.mark.spec("rabbitmq-extensions", "sender-selected distribution")
def test_cc_and_bcc_are_further_routing_keys(channel: PeerChannel, name: str) -> None:
    main, copy, blind, other = (channel.declare(exclusive=True) for _ in range(4))
    headers: dict[str, object] = {"CC": [copy, main, "nowhere." + name], "BCC": [blind], "n": 5}
    channel.publish(b"body", main, properties=Basic.Properties(headers=headers, message_id="id"))  # type: ignore[arg-type]
    for queue in (main, copy, blind):
        taken = channel.take(queue)
        assert taken.body == b"body"
        assert isinstance(taken.method, Basic.GetOk)
        assert taken.method.routing_key == main
        assert taken.properties.headers == {"CC": headers["CC"], "n": 5}, "nobody learns of BCC"
        assert taken.properties.message_id == "id"
        assert channel.get(queue) is None
    assert channel.get(other) is None


@pytest.mark.spec("rabbitmq-extensions", "sender-selected distribution")
def test_a_message_is_routed_by_a_key_in_its_cc_or_bcc_header(channel: PeerChannel, name: str) -> None:
    queue = channel.declare(exclusive=True)
    channel.publish(b"x", name, properties=Basic.Properties(headers={"BCC": [queue]}), mandatory=True)
    channel.expect_silence()
    assert channel.take(queue).properties.headers is None
    channel.publish(b"y", name, properties=Basic.Properties(headers={"CC": [name + "2"]}), mandatory=True)
    assert channel.returned().body == b"y"


@pytest.mark.spec("rabbitmq-extensions", "sender-selected distribution")
@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"CC": 5}, 'invalid message: {unacceptable_type_in_header,"CC",signedint}'),
        ({"BCC": "q"}, 'invalid message: {unacceptable_type_in_header,"BCC",longstr}'),
    ],
)
def test_keys_that_are_no_array_are_refused(
    channel: PeerChannel, headers: dict[str, object], text: str
) -> None:
    channel.publish(b"x", "q", properties=Basic.Properties(headers=headers))  # type: ignore[arg-type]
    assert channel.expect_close(406) == f"PRECONDITION_FAILED - {text}"


@pytest.mark.spec("rabbitmq-extensions", "validated user-id")
def test_a_user_id_other_than_that_of_the_connection_closes_the_channel_with_406(connect: Connector) -> None:
    channel = connect().channel()
    queue = channel.declare(exclusive=True)
    channel.publish(b"x", queue, properties=Basic.Properties(user_id="guest"))
    assert channel.take(queue).properties.user_id == "guest"
    channel.publish(b"x", queue, properties=Basic.Properties(user_id="somebody"))
    assert (
        channel.expect_close(406)
        == "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was 'guest'"
    )
