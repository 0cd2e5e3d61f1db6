"""Run a broker and record the path of its messages: a command to put before the broker's command.

Each line of the file TRACED_FILE is a JSON list: the modules of the broker on the stack, from the step of the
event loop to the call, where one of the calls in TRACED_CALLS (`module.function`, with commas between them)
was made. Neighbours of the same module count once. Interpreted modules only.
"""

import json
import os
import sys
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("broker", "protocol")
OUTSIDE = {"broker.__main__", "broker.cli", "broker.daemon"}  # the modules below each step of the event loop

_names: dict[CodeType, str] = {}


def module_of(code: CodeType) -> str:
    """The module of the broker that has the code; "" for other code."""
    name = _names.get(code)
    if name is None:
        path = Path(code.co_filename)
        name = ""
        if path.is_relative_to(ROOT):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts) if parts[0] in PACKAGES else ""
        _names[code] = name
    return name


def way_to(frame: FrameType) -> list[str]:
    """The modules on the stack, the step of the event loop first."""
    found: list[str] = []
    at: FrameType | None = frame
    while at is not None:
        name = module_of(at.f_code)
        if name in OUTSIDE:
            break
        if name and (not found or found[-1] != name):
            found.append(name)
        at = at.f_back
    return found[::-1]


def main() -> None:
    """Trace the calls, and become the broker."""
    sys.argv = ["amqpd", *sys.argv[sys.argv.index("broker") + 1 :]]
    sys.path.insert(0, str(ROOT))
    traced = set(os.environ["TRACED_CALLS"].split(","))
    from broker.__main__ import main as serve

    with Path(os.environ["TRACED_FILE"]).open("a", encoding="utf-8", buffering=1) as trace:

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                name = f"{module_of(frame.f_code)}.{frame.f_code.co_name}"
                if name in traced:
                    trace.write(json.dumps([name, way_to(frame)]) + "\n")

        sys.setprofile(note)
        try:
            serve()
        finally:
            sys.setprofile(None)


if __name__ == "__main__":
    main()
