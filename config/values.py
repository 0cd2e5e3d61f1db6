"""The forms of the values of settings: addresses, sizes, numbers, and the values that each form allows."""

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
PORT_MAX: Final = 65535
DIGITS_MAX: Final = 100  # more than any setting needs, and few enough for int()

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/@?#\s]+", re.ASCII)  # [RFC 6454 6.2]
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to listen on. Port 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return `HOST:PORT`, with an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(value: object) -> Endpoint:
    """Read `HOST:PORT` or `[IPv6]:PORT`. Raises ValueError."""
    if isinstance(value, Endpoint):
        return value
    if not isinstance(value, str):
        raise ValueError("not an address")
    text = value.strip()
    if text.startswith("["):
        host, bracket, port = text[1:].rpartition("]:")
        if not bracket or ":" not in host:
            raise ValueError("not an address")
    else:
        host, colon, port = text.rpartition(":")
        if not colon:
            raise ValueError("the port is missing")
        if ":" in host:
            raise ValueError("an IPv6 address is written in brackets")
    if not host or any(c.isspace() or c in "[]/" for c in host):
        raise ValueError("the host is missing or malformed")
    if not (port.isascii() and port.isdigit()) or len(port) > DIGITS_MAX or int(port) > PORT_MAX:
        raise ValueError(f"the port is not a number from 0 to {PORT_MAX}")
    return Endpoint(host, int(port))


def parse_endpoints(value: object) -> tuple[Endpoint, ...]:
    """Read one or more addresses: a list, or one text with commas between them. Raises ValueError."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not items:
        raise ValueError("not a list of addresses")
    endpoints = tuple(parse_endpoint(item) for item in items)
    fixed = [e for e in endpoints if e.port]
    if len(set(fixed)) != len(fixed):
        raise ValueError("the same address twice")
    return endpoints


def parse_endpoints_or_off(value: object) -> tuple[Endpoint, ...]:
    """Read any number of addresses; none: an empty list, or `off`. Raises ValueError."""
    if value in ([], ()) or is_off(value):
        return ()
    return parse_endpoints(value)


def is_off(value: object) -> bool:
    """Whether a value is the word `off`, or a list with only this word, as flags give it."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return isinstance(value, str) and value.strip().lower() == "off"


def parse_endpoint_or_off(value: object) -> Endpoint | None:
    """Read an address, or `off` as None. Raises ValueError."""
    return None if value is None or is_off(value) else parse_endpoint(value)


def parse_text_or_off(value: object) -> str | None:
    """Read a text, or `off` as None. Raises ValueError."""
    if value is None or is_off(value):
        return None
    if not isinstance(value, str) or not value:
        raise ValueError("not a text")
    return value


def parse_origins(value: object) -> tuple[str, ...]:
    """Read origins of web pages: a list, or one text with commas; or `any`, or `off`. Raises ValueError."""
    if value in ([], ()) or is_off(value):
        return ()
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError("not a list of origins")
    origins = tuple(str(item).strip().lower().removesuffix("/") for item in items)
    for item in origins:
        if item != "any" and not _ORIGIN.fullmatch(item):
            raise ValueError(f"{item!r} is no origin")
    return origins


def parse_patterns(value: object) -> tuple[str, ...]:
    """Read regular expressions: a list, or one text; none: an empty list, or `off`. Raises ValueError."""
    if value in ([], ()) or is_off(value):
        return ()
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
        raise ValueError("not a list of regular expressions")
    return tuple(items)


def make_words_parser(allowed: Collection[str]) -> Callable[[object], tuple[str, ...]]:
    """Read one or more of the allowed words: a list, or one text with commas. Raises ValueError."""

    def read(value: object) -> tuple[str, ...]:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not items:
            raise ValueError("not a list of words")
        words = tuple(str(item).strip().upper() for item in items)
        for item in words:
            if item not in allowed:
                raise ValueError(f"{item!r} is not known")
        return tuple(dict.fromkeys(words))

    return read


def parse_whole_number(value: object) -> int:
    """Read an integer; truth values and fractions are refused. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value, re.ASCII):
        if len(value.strip()) > DIGITS_MAX:
            raise ValueError(f"a number of more than {DIGITS_MAX} digits")
        return int(value)
    raise ValueError("not a whole number")


def make_minimum_check(least: int) -> Callable[[int], int]:
    """Accept 0 and numbers of at least `least`. Raises ValueError for numbers between."""

    def check(value: int) -> int:
        if value != 0 and value < least:
            raise ValueError(f"neither 0 nor at least {least}")
        return value

    return check


def parse_size(value: object) -> int:
    """Read a number of bytes: `67108864`, `"64MiB"`, `"1.5 GB"`. Raises ValueError."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip().lower())
        unit = UNITS.get(match[2]) if match else None
        if match is None or unit is None or ("." in match[1] and unit == 1):
            raise ValueError("not a number of bytes")
        if len(match[1]) > DIGITS_MAX:
            raise ValueError(f"a number of more than {DIGITS_MAX} digits")
        return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    return parse_whole_number(value)


def make_share_parser(total: Callable[[], int]) -> Callable[[object], int]:
    """Read a number of bytes as `parse_size` does, or a percentage of `total()` bytes. Raises ValueError."""

    def read(value: object) -> int:
        match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            return parse_size(value)
        percent = float(match[1])  # infinite, if it has hundreds of digits
        if not 0 < percent <= 100:
            raise ValueError("not a percentage above 0 and up to 100")
        return int(total() * percent / 100)

    return read


def parse_folder(value: object) -> Path:
    """Read the path of a folder; `~` is the home folder. Raises ValueError."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("the path is empty")
    if not isinstance(value, (str, Path)) or "\0" in str(value):
        raise ValueError("not a path")
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("the home folder is not known") from error


def parse_file_or_none(value: object) -> Path | None:
    """Read the path of a file, or `none` as None. Raises ValueError."""
    return None if value is None or is_none(value) else parse_folder(value)


def is_none(value: object) -> bool:
    """Whether a value is the word `none`."""
    return isinstance(value, str) and value.strip().lower() == "none"


def parse_switch(value: object) -> bool:
    """Read `true` or `false`. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("neither true nor false")


def fold_case(value: object) -> object:
    """Fold the case of a word that is one of a fixed few."""
    return value.strip().lower() if isinstance(value, str) else value


def read_memory_limit(root: Path = Path("/")) -> int:
    """Return the memory that this process may use: the machine's, or the limit of a control group."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in _group_limits(root):
        try:
            text = limit.read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # "max" where there is no limit
            limits.append(int(text))
    return min(limits)


def _group_limits(root: Path) -> list[Path]:
    """Return the paths of the memory limits of this process's control groups and their ancestors."""
    files = [root / "sys/fs/cgroup/memory.max", root / "sys/fs/cgroup/memory/memory.limit_in_bytes"]
    try:
        membership = (root / "proc/self/cgroup").read_text()
    except OSError:
        return files
    for line in membership.splitlines():
        hierarchy, controllers, group = line.split(":", 2)
        parts = [part for part in group.split("/") if part and part != ".."]
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            if hierarchy == "0":
                files.append(root / "sys/fs/cgroup" / path / "memory.max")
            elif "memory" in controllers.split(","):
                files.append(root / "sys/fs/cgroup/memory" / path / "memory.limit_in_bytes")
    return files
