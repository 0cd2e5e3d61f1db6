"""A scenario with RabbitMQ's Python client, 2.x; the observations are printed as JSON.

python rabbitmq_python.py SCENARIO QUEUE HOST PORT
"""

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

scenario, queue, host, port = sys.argv[1:]
client: Any = importlib.import_module("rabbitmq_amqp_python_client")

COUNT = 200
PATIENCE_S = 60


def connect(**besides: Any) -> Any:
    """Open a connection."""
    return client.Connection(client.ConnectionParameters(host=host, port=int(port), **besides))


def numbered(number: int) -> Any:
    """A message with a number."""
    header = client.Header(durable=True)
    return client.Message(client.AmqpValue(number), header=header)


def send_numbers(connection: Any, count: int) -> int:
    """Send so many; returns how many were accepted."""
    publisher = connection.publisher_builder().queue(queue).build()
    states = [publisher.publish(numbered(number)).outcome.state for number in range(count)]
    publisher.close()
    return states.count(client.OutcomeState.ACCEPTED)


class Taking:
    """A consumer that settles the first messages with given outcomes, and no later ones."""

    def __init__(self, connection: Any, *says: Callable[[Any], None], builder: Any = None) -> None:
        self.messages: list[Any] = []
        self._says = list(says)
        self._all = threading.Event()
        builder = builder or connection.consumer_builder().queue(queue)
        self.consumer = builder.message_handler(self._taken).build()

    def _taken(self, context: Any, message: Any) -> None:
        if len(self.messages) < len(self._says):
            self._says[len(self.messages)](context)
            self.messages.append(message)
            if len(self.messages) == len(self._says):
                self._all.set()

    def wait(self) -> list[Any]:
        """Wait for all messages and return them."""
        assert self._all.wait(PATIENCE_S), f"{len(self.messages)} of {len(self._says)} came"
        return self.messages

    def taken(self) -> list[Any]:
        """Wait for all messages, detach, and return them."""
        messages = self.wait()
        self.consumer.close()
        return messages


def accept(context: Any) -> None:
    """Say that it is done."""
    context.accept()


def say_nothing(context: Any) -> None:
    """Say nothing."""


def sends() -> object:
    connection = connect()
    accepted = send_numbers(connection, COUNT)
    connection.close()
    return {"accepted": accepted}


def receives() -> object:
    connection = connect()
    send_numbers(connection, COUNT)
    bodies = [message.body.value for message in Taking(connection, *[accept] * COUNT).taken()]
    connection.close()
    return {"inOrder": bodies == list(range(COUNT))}


def receives_settled() -> object:
    connection = connect()
    send_numbers(connection, COUNT)
    builder = connection.consumer_builder().queue(queue)
    builder.settle_strategy(client.ConsumerSettleStrategy.PRESETTLED)
    bodies = [
        message.body.value for message in Taking(connection, *[say_nothing] * COUNT, builder=builder).taken()
    ]
    connection.close()
    return {"inOrder": bodies == list(range(COUNT))}


def says_outcomes() -> object:
    connection = connect()
    send_numbers(connection, 5)
    says: list[Callable[[Any], None]] = [
        accept,
        lambda context: context.requeue(),
        lambda context: context.requeue({"x-opt-tried": 1}, delivery_failed=True),
        lambda context: context.discard(),
        say_nothing,
    ]
    builder = connection.consumer_builder().queue(queue).initial_credits(5)
    *_, again, tried = Taking(connection, *says, accept, accept, builder=builder).taken()
    connection.close()
    return [[message.body.value, message.header.delivery_count] for message in (again, tried)]


def manages() -> object:
    connection = connect()
    management = connection.management()
    limited = management.queue("limited").classic().max_priority(5).queue().max_length(7).declare()
    exclusive = management.queue("").exclusive().auto_delete().declare()
    management.exchange("outer").type(client.ExchangeType.DIRECT).declare()
    management.exchange("inner").type(client.ExchangeType.HEADERS).declare()
    management.bind(source="outer", destination="inner", binding_key="a/b", to_queue=False)
    headers = {"x-match": "all", "colour": "red"}
    management.bind(source="inner", destination="limited", arguments=headers)
    management.bind(source="outer", destination=exclusive.name, binding_key="c d")
    bindings = management.list_bindings(source="inner", destination="limited")
    publisher = connection.publisher_builder().exchange("outer").key("a/b").build()
    colours = [client.ApplicationProperties({"colour": colour}) for colour in ("red", "blue")]
    states = [
        publisher.publish(client.Message("x", application_properties=colour)).outcome.state.value
        for colour in colours
    ]
    count = management.queue_info("limited").message_count
    purged = management.queue("limited").purge()
    unbound = management.unbind(source="inner", destination="limited", arguments=headers)
    unbound_before = management.unbind(source="inner", destination="limited", arguments=headers)
    management.unbind(source="outer", destination="inner", binding_key="a/b", to_queue=False)
    released = publisher.publish(client.Message("x")).outcome.state.value
    management.exchange("inner").delete()
    management.queue("limited").delete()
    gone = code_of(lambda: management.queue_info("limited"))
    publisher.close()
    management.exchange("outer").delete()
    connection.close()
    return {
        "limited": [limited.name, limited.durable, limited.arguments["x-max-length"]],
        "exclusive": [exclusive.exclusive, exclusive.auto_delete],
        "bindings": [binding["arguments"] for binding in bindings],
        "states": [*states, released],
        "counts": [count, purged],
        "unbound": [unbound, unbound_before],
        "gone": gone,
    }


def is_refused() -> object:
    connection = connect()
    management = connection.management()
    nowhere = {"source": "amq.topic", "destination": "nowhere"}
    codes = [
        code_of(lambda: management.queue(queue).classic().queue().max_length(7).declare()),
        code_of(lambda: management.exchange("amq.topic").type(client.ExchangeType.FANOUT).declare()),
        code_of(lambda: management.bind(**nowhere)),
        code_of(lambda: management.queue("nowhere").purge()),
        code_of(lambda: management.queue("amq.mine").declare()),
    ]
    links = [
        code_of(connection.publisher_builder().queue("nowhere").build),
        code_of(connection.consumer_builder().queue("nowhere").message_handler(say_nothing).build),
    ]
    anywhere = connection.publisher_builder().build()
    to = client.Properties(to="/queues/nowhere")
    rejected = anywhere.publish(client.Message("x", properties=to)).outcome
    accepted = send_numbers(connection, 1)  # the connection works on
    connection.close()
    stranger = code_of(lambda: connect(password="wrong"))
    return {
        "codes": codes,
        "links": links,
        "rejected": [rejected.state.value, rejected.error.condition],
        "accepted": accepted,
        "stranger": stranger,
    }


def answers_directly() -> object:
    connection = connect()
    builder = connection.consumer_builder()
    builder.settle_strategy(client.ConsumerSettleStrategy.DIRECT_REPLY_TO)
    asking = Taking(connection, say_nothing, builder=builder)
    request = client.Message(
        "question", properties=client.Properties(message_id="7", reply_to=asking.consumer.address)
    )
    connection.publisher_builder().queue(queue).build().publish(request)
    (question,) = Taking(connection, accept).taken()
    properties = question.properties
    answer = client.Message(
        "answer", properties=client.Properties(to=properties.reply_to, correlation_id=properties.message_id)
    )
    state = connection.publisher_builder().build().publish(answer).outcome.state.value
    (answered,) = asking.taken()
    connection.close()
    return [state, answered.body_as_string(), answered.properties.correlation_id]


def carries() -> object:
    sent = bytes(range(256)) * 4000
    properties = client.Properties(
        message_id=7, subject="subject", reply_to="replies", content_type="text/plain"
    )
    applications = {"text": "a", "number": 7, "truth": True}
    connection = connect(max_frame_size=16384)
    message = client.Message(
        sent,
        header=client.Header(durable=True, priority=6),
        properties=properties,
        application_properties=client.ApplicationProperties(applications),
        message_annotations=client.MessageAnnotations({client.Symbol("x-opt-mine"): "mine"}),
    )
    publisher = connection.publisher_builder().queue(queue).build()
    publisher.publish(message)
    (got,) = Taking(connection, accept).taken()
    connection.close()
    received_properties = got.properties
    annotations = {str(key): value for key, value in got.message_annotations.value.items()}
    return {
        "same": got.body.value == sent,
        "said": [
            int(received_properties.message_id),
            received_properties.subject,
            received_properties.reply_to,
            received_properties.content_type,
        ],
        "properties": got.application_properties.value,
        "header": [got.header.durable, got.header.priority],
        "annotations": [annotations[name] for name in ("x-opt-mine", "x-exchange", "x-routing-key")],
    }


def reconnects() -> object:
    connection = connect()
    publisher = connection.publisher_builder().queue(queue).build()
    consuming = Taking(connection, *[accept] * COUNT)
    accepted = 0
    while accepted < COUNT:
        try:
            publisher.publish(numbered(accepted))
        except client.AMQPError:
            time.sleep(0.1)
            continue
        accepted += 1
        if accepted == COUNT // 2:
            while len(consuming.messages) < accepted:
                time.sleep(0.01)
            print("restart the broker", flush=True)
            sys.stdin.readline()
    bodies = [message.body.value for message in consuming.wait()]
    connection.close()
    return {"inOrder": bodies == list(range(COUNT))}


def code_of(act: Callable[[], object]) -> object:
    """Why something fails."""
    try:
        act()
    except client.ManagementError as error:
        return error.status_code
    except client.AMQPError as error:
        return type(error).__name__
    return "nothing"


print(json.dumps(globals()[scenario]()))
