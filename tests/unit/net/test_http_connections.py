"""The limits of HTTP connections, and which connections are closed at a limit."""

import pytest

from broker.net.http_connections import DESCRIPTORS, HttpConnections
from broker.net.strangers import AMQP, Stranger, Strangers


class Phone:
    """An HTTP connection that notes how it ended."""

    def __init__(self, address: str, number: int) -> None:
        self.address = address
        self.peer = f"{address}:{number}"
        self.end = ""

    def close_now(self) -> None:
        self.end = "closed"

    def refuse(self) -> None:
        self.end = "refused"


class Clock:
    """A clock for log lines."""

    def __call__(self) -> float:
        return 0.0


@pytest.fixture
def strangers() -> Strangers:
    return Strangers(1000, 400)


@pytest.fixture
def callers(strangers: Strangers) -> HttpConnections:
    return HttpConnections(strangers, 10, 4, Clock())


def arrive(callers: HttpConnections, address: str, count: int) -> list[Phone]:
    phones = [Phone(address, number) for number in range(count)]
    for phone in phones:
        callers.add(phone)
    return phones


def ends(phones: list[Phone]) -> list[str]:
    return [phone.end for phone in phones]


def test_the_oldest_connections_beyond_the_limit_of_an_address_are_closed(callers: HttpConnections) -> None:
    phones = arrive(callers, "10.0.0.1", 7)
    assert ends(phones) == ["closed"] * 3 + [""] * 4
    assert len(callers) == 4


def test_a_network_of_ipv6_counts_as_one_address(callers: HttpConnections) -> None:
    phones = [Phone(f"2001:db8::{number:x}", number) for number in range(1, 6)]
    for phone in phones:
        callers.add(phone)
    assert ends(phones) == ["closed", "", "", "", ""]


def test_a_logged_in_connection_is_not_closed_before_its_answer(callers: HttpConnections) -> None:
    phones = arrive(callers, "10.0.0.1", 4)
    callers.on_logged_in(phones[0])
    (fifth,) = arrive(callers, "10.0.0.1", 1)
    assert ends(phones) == ["", "closed", "", ""]
    callers.on_request_answered(phones[0])
    arrive(callers, "10.0.0.1", 1)
    assert phones[0].end == "closed"
    assert fifth.end == ""


def test_a_new_connection_is_refused_if_all_connections_are_logged_in(callers: HttpConnections) -> None:
    phones = arrive(callers, "10.0.0.1", 4)
    for phone in phones:
        callers.on_logged_in(phone)
    (fifth,) = arrive(callers, "10.0.0.1", 1)
    assert ends(phones) == [""] * 4
    assert fifth.end == "refused"


def test_a_connection_of_the_largest_network_is_closed_for_too_many_in_all(callers: HttpConnections) -> None:
    few = arrive(callers, "10.0.0.1", 1)
    many = [phone for number in range(2, 5) for phone in arrive(callers, f"10.0.0.{number}", 4)]
    assert few[0].end == ""
    assert len(callers) == 10
    assert sum(phone.end == "closed" for phone in many) == 3


def test_http_has_a_quarter_of_the_descriptors_at_most() -> None:
    strangers = Strangers(1000, 40)
    callers = HttpConnections(strangers, 1000, 1000, Clock())
    phones = arrive(callers, "10.0.0.1", 100)
    assert ends(phones).count("") == 10
    assert not arrived(strangers, 30)


def arrived(strangers: Strangers, count: int) -> list[int]:
    """Open `count` connections of AMQP; return the refused ones."""
    turned_away: list[int] = []
    for number in range(count):
        strangers.add(number, Stranger(str(number), 1, lambda number=number: turned_away.append(number)))  # type: ignore[misc]
    return turned_away


def test_descriptors_that_answers_take_are_counted() -> None:
    strangers = Strangers(1000, 40)
    callers = HttpConnections(strangers, 1000, 1000, Clock())
    phones = arrive(callers, "10.0.0.1", 5)
    for phone in phones:
        callers.on_logged_in(phone)
    assert len(arrived(strangers, 40)) == 5 * DESCRIPTORS
    for phone in phones:
        callers.on_request_answered(phone)
        callers.remove(phone)
    assert len(callers) == 0


def test_strangers_on_the_admin_port_do_not_displace_amqp_strangers() -> None:
    turned_away: list[str] = []
    strangers = Strangers(1000, 10)
    for number in range(50):
        strangers.add(("admin", number), Stranger("", 1, lambda: turned_away.append("admin"), "admin"))
    strangers.add("amqp", Stranger("", 1, lambda: turned_away.append(AMQP)))
    for number in range(50, 100):
        strangers.add(("admin", number), Stranger("", 1, lambda: turned_away.append("admin"), "admin"))
    assert AMQP not in turned_away


def test_closed_connections_are_forgotten(callers: HttpConnections, strangers: Strangers) -> None:
    phones = arrive(callers, "10.0.0.1", 7)
    for phone in phones:
        callers.on_logged_in(phone)
        callers.remove(phone)
        callers.remove(phone)
        callers.on_request_answered(phone)
    assert len(callers) == 0
    assert (callers._networks, callers._busy) == ({}, set())
    assert strangers._descriptors == 0
