"""A scenario with the AMQP 1.0 of azure-eventhub or azure-servicebus; the observations are printed as JSON.

python azure_pyamqp.py PACKAGE SCENARIO QUEUE HOST PORT
"""

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

package, scenario, queue, host, port = sys.argv[1:]
pyamqp: Any = importlib.import_module(f"azure.{package}._pyamqp")
authentication: Any = importlib.import_module(f"azure.{package}._pyamqp.authentication")
constants: Any = importlib.import_module(f"azure.{package}._pyamqp.constants")
errors: Any = importlib.import_module(f"azure.{package}._pyamqp.error")
messages: Any = importlib.import_module(f"azure.{package}._pyamqp.message")

ADDRESS = f"/queues/{queue}"
COUNT = 200
Taken = list[tuple[Any, Any]]
"""Received messages: for each the frame in which it began, and the message."""


def options(**besides: Any) -> dict[str, Any]:
    """Return the options that all clients have."""
    password = besides.pop("password", "guest")
    plain = authentication.SASLPlainAuth("guest", password)
    impatient = errors.RetryPolicy(retry_total=0)
    return {"auth": plain, "use_tls": False, "retry_policy": impatient, **besides}


def sender(address: str = ADDRESS, **besides: Any) -> Any:
    """Return a client that sends to a node.

    By default it asks for receiver-settle-mode second, and then waits for a settlement that is its own task.
    """
    first = constants.ReceiverSettleMode.First
    return pyamqp.SendClient(f"{host}:{port}", address, **options(receive_settle_mode=first, **besides))


def receiver(credit: int, address: str = ADDRESS, **besides: Any) -> Any:
    """Return a client that receives from a node, with this credit."""
    return pyamqp.ReceiveClient(f"{host}:{port}", address, **options(link_credit=credit, **besides))


def numbered(number: int) -> Any:
    """A message with a number, which is not 0: the client sends no body then."""
    return messages.Message(header=messages.Header(durable=True), value=number)


def send_numbers(count: int, **besides: Any) -> int:
    """Send so many; each that returns was accepted."""
    with sender(**besides) as client:
        for number in range(1, count + 1):
            client.send_message(numbered(number))
    return count


def take(client: Any, count: int) -> Taken:
    """The next messages."""
    received = client._received_messages
    client.open()
    while received.qsize() < count:
        client.do_work()
    return [received.get_nowait() for _ in range(count)]


def settle(client: Any, frame: Any, outcome: str, **besides: Any) -> None:
    """Settle a message with an outcome."""
    client.settle_messages(frame[1], frame[2], outcome, **besides)


def sends() -> object:
    return {"accepted": send_numbers(COUNT)}


def receives() -> object:
    send_numbers(COUNT)
    with receiver(COUNT // 4) as client:
        taken = take(client, COUNT)
        for frame, _ in taken:
            settle(client, frame, "accepted")
    return {"inOrder": [message.value for _, message in taken] == list(range(1, COUNT + 1))}


def receives_settled() -> object:
    """Receive as applications do that let the broker settle."""
    send_numbers(COUNT)
    bodies: list[int] = []
    settled = constants.SenderSettleMode.Settled
    with receiver(50, send_settle_mode=settled) as client:
        while len(bodies) < COUNT:
            bodies += [message.value for message in client.receive_message_batch(max_batch_size=50)]
    return {"inOrder": bodies == list(range(1, COUNT + 1))}


def says_outcomes() -> object:
    send_numbers(6)
    with receiver(6) as client:
        taken = take(client, 6)
        settle(client, taken[0][0], "accepted")
        settle(client, taken[1][0], "released")
        settle(client, taken[2][0], "modified", delivery_failed=True)
        error = errors.AMQPError(condition="test:bad", description="it is bad", info=None)
        settle(client, taken[3][0], "rejected", error=error)
        settle(client, taken[4][0], "modified", delivery_failed=False)
        again = take(client, 3)  # and nothing was said of the last one
        for frame, _ in again:
            settle(client, frame, "accepted")
    return [[message.value, message.header.delivery_count or 0] for _, message in again]


def settles_ranges() -> object:
    send_numbers(10)
    with receiver(10) as client:
        taken = take(client, 10)
        first, last = taken[2][0], taken[8][0]
        client.settle_messages((first[1], last[1]), first[2], "accepted")
    return {"settled": 7}


def settles_second() -> object:
    """The broker says of each that it has done so."""
    send_numbers(4)
    with receiver(4) as client:
        taken = take(client, 4)
        for (frame, _), outcome in zip(taken, ("accepted", "rejected", "modified", "released"), strict=True):
            settle(client, frame, outcome, await_outcome=True, outcome_timeout=60)
    return {"settled": 4}


def carries() -> object:
    sent = bytes(range(256)) * 4000
    properties = messages.Properties(
        message_id="one",
        subject="subject",
        reply_to="replies",
        correlation_id="two",
        content_type="text/plain",
    )
    applications = {"text": "a", "number": 7, "truth": True}
    with sender(max_frame_size=16384) as client:
        message = messages.Message(
            header=messages.Header(durable=True, priority=6),
            message_annotations={"x-opt-mine": "mine"},
            properties=properties,
            application_properties=applications,
            data=[sent[:1000], sent[1000:]],
        )
        client.send_message(message)
    with receiver(1, max_frame_size=16384, max_message_size=10_000_000) as client:
        ((frame, got),) = take(client, 1)
        settle(client, frame, "accepted")
    received_properties = got.properties
    annotations = {text(key): text(value) for key, value in got.message_annotations.items()}
    return {
        "same": b"".join(got.data) == sent and len(got.data) == 2,
        "said": [
            text(part)
            for part in (
                received_properties.message_id,
                received_properties.subject,
                received_properties.reply_to,
                received_properties.content_type,
            )
        ],
        "properties": {text(key): text(value) for key, value in got.application_properties.items()},
        "header": [got.header.durable, got.header.priority],
        "annotations": [annotations[name] for name in ("x-opt-mine", "x-exchange", "x-routing-key")],
    }


def is_refused() -> object:
    nowhere = "/queues/nowhere"
    return [
        condition_of(lambda: sender(nowhere).send_message(numbered(1))),
        condition_of(lambda: take(receiver(1, nowhere), 1)),
        condition_of(lambda: sender("").send_message(to(nowhere))),
        condition_of(lambda: sender(password="wrong").send_message(numbered(1))),
    ]


def is_rejected() -> object:
    with sender() as client:
        client.send_message(numbered(1))
        client.send_message(numbered(2))
        return condition_of(lambda: client.send_message(numbered(3)))


def reconnects() -> object:
    """The client ends with its connection; accepted messages are in the queue for the next client."""
    half = COUNT // 2
    sending, receiving = sender(), receiver(half // 2)
    for number in range(1, half + 1):
        sending.send_message(numbered(number))
    taken = take(receiving, half // 2)
    for frame, _ in taken[::2]:
        settle(receiving, frame, "accepted")
    print("restart the broker", flush=True)
    sys.stdin.readline()
    lost = [fails(lambda: sending.send_message(numbered(half + 1))), fails(lambda: take(receiving, 1))]
    with sender() as client:
        for number in range(half + 1, COUNT + 1):
            client.send_message(numbered(number))
    seen = {message.value for _, message in taken[::2]}  # some of which may come again
    last = 0
    with receiver(half // 2) as client:
        while last < COUNT:
            ((frame, message),) = take(client, 1)
            last = message.value
            seen.add(last)
            settle(client, frame, "accepted")
    return {"lost": lost, "all": sorted(seen) == list(range(1, COUNT + 1))}


def fails(act: Callable[[], object]) -> bool:
    """Whether something fails because the connection is lost."""
    try:
        act()
    except errors.AMQPConnectionError:
        return True
    return False


def to(address: str) -> Any:
    """A message that says where to."""
    return messages.Message(properties=messages.Properties(to=address), value=1)


def condition_of(act: Callable[[], object]) -> Any:
    """Why something fails."""
    try:
        act()
    except errors.AMQPException as error:
        return text(getattr(error.condition, "value", error.condition))
    except ValueError as error:  # raised by a login
        return str(error).partition("\n")[0]
    return "nothing"


def text(value: Any) -> Any:
    """Octets as text, other things as they are."""
    return value.decode() if isinstance(value, bytes) else value


print(json.dumps(globals()[scenario]()))
