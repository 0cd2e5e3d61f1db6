"""Failed log-ins, and the delay of the next log-in. `now`: seconds of a clock that never goes back."""

import ipaddress
from collections import OrderedDict
from typing import Final, final

FREE_FAILURES: Final = 3  # for a user from a network: people mistype
FREE_NAMES: Final = 10  # names that failed from a network
DELAY_MIN: Final = 0.25
DELAY_MAX: Final = 5.0
FORGOTTEN_SECONDS: Final = 600.0
ENTRIES_MAX: Final = 20_000
IPV6_PREFIX: Final = 64  # a customer of a provider usually has such a network

Key = tuple[str, str | None]


@final
class BackOff:
    """The failures that slow guessing down: after a few, each further failure doubles the delay, up to 5 s.

    Failures are counted for a user's name from a network (an IPv4 address, or 64 bits of an IPv6 address).
    Failures are also counted for a network, by the names that failed from the network. The first count delays
    the next log-in with this name. The second count delays refusals only. So users with the right password
    are delayed neither by failures elsewhere nor by any number of wrong names from the same network. The
    memory is bounded: the longest idle entry is dropped first.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[Key, tuple[int, float]] = OrderedDict()  # number, time of the last

    def __len__(self) -> int:
        return len(self._failures)

    def login_delay(self, address: str, user: str, now: float) -> float:
        """Return the seconds until `user` may log in from `address`; 0: now."""
        return max(0.0, self._ready((network(address), user), FREE_FAILURES) - now)

    def refusal_delay(self, address: str, now: float) -> float:
        """Return the seconds by which a refusal to `address` is delayed after failures of many names."""
        return max(0.0, self._ready((network(address), None), FREE_NAMES) - now)

    def count_failure(self, address: str, user: str, now: float) -> None:
        """Count a failure."""
        while self._failures:
            key, (_, latest) = next(iter(self._failures.items()))
            if now - latest < FORGOTTEN_SECONDS and len(self._failures) < ENTRIES_MAX:
                break
            del self._failures[key]
        group = network(address)
        if (group, user) not in self._failures:
            self._count((group, None), now)
        self._count((group, user), now)

    def forget_failures(self, address: str, user: str) -> None:
        """Forget the failures of a user from the network of `address`: the user knows the password."""
        self._failures.pop((network(address), user), None)

    def _count(self, key: Key, now: float) -> None:
        count, _ = self._failures.get(key, (0, now))
        self._failures[key] = (count + 1, now)
        self._failures.move_to_end(key)

    def _ready(self, key: Key, free: int) -> float:
        count, latest = self._failures.get(key, (0, 0.0))
        if count < free:
            return 0.0
        return latest + min(DELAY_MAX, DELAY_MIN * 2.0 ** min(count - free, 16))


def network(address: str) -> str:
    """Return the network of an address, for which failures are counted; other texts as they are."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.IPv6Network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)
