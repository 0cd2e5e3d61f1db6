"""Which sender and consumer speak which protocol."""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.bench.consumer091 import Consumer091
from broker.bench.consumer10 import Consumer10
from broker.bench.flow import Flow
from broker.bench.plan import AMQP_091, AMQP_10, Plan
from broker.bench.roles import Consumer, Sender
from broker.bench.sender091 import Sender091
from broker.bench.sender10 import Sender10


class Speaker(NamedTuple):
    """Who speaks one protocol: made of plan, flow, and lanes with queues and an exchange, or queues."""

    sender: Callable[[Plan, Flow, list[tuple[int, str]], str], Sender]
    consumer: Callable[[Plan, Flow, list[str]], Consumer]


SPEAKERS: Final = {
    AMQP_091: Speaker(Sender091, Consumer091),
    AMQP_10: Speaker(Sender10, Consumer10),
}
