"""Serial numbers: 32 bits that wrap. [amqp-1.0 2.8.10, RFC 1982]"""

from mypy_extensions import i64


def forward(serial: i64, steps: i64) -> i64:
    """Return the serial number `steps` after `serial`; a negative number of steps leads backwards."""
    return serial + steps & 0xFFFFFFFF


def distance(first: i64, last: i64) -> i64:
    """Return the number of steps from `first` to `last`, -2^31 to 2^31 - 1, negative if `last` comes first.

    At a distance of 2^31, for which RFC 1982 defines no order, `last` counts as the earlier one.
    """
    return (last - first + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def precedes(one: i64, other: i64) -> bool:
    """Whether `one` comes before `other`."""
    return distance(one, other) > 0
