"""The command `amqpd`, also started as `python -m broker`."""

import importlib
import sys
from typing import Final

OWNED: Final = ("broker", "protocol", "config")


def main() -> None:
    """Check that the packages are amqpd's own, then run the command line."""
    foreign = foreign_package()
    if foreign:
        sys.stderr.write(f"amqpd: {foreign}; install amqpd into an environment of its own\n")
        sys.exit(2)
    # Not before the check: the import of another distribution's `config` would end in an unclear error.
    from broker.cli import command_line

    command_line(sys.argv[1:])(prog_name="amqpd")


def control() -> None:
    """Check the packages, then run the command line of `amqpctl`."""
    foreign = foreign_package()
    if foreign:
        sys.stderr.write(f"amqpctl: {foreign}; install amqpd into an environment of its own\n")
        sys.exit(2)
    from broker.ctl.command import control_line

    control_line()(prog_name="amqpctl")


def foreign_package() -> str:
    """Return the package of amqpd that another distribution has replaced; "" if none is replaced."""
    for name in OWNED:
        package = importlib.import_module(name)
        if getattr(package, "OWNER", None) != "amqpd":
            return f"the package '{name}' at {package.__file__} is not amqpd's"
    return ""


if __name__ == "__main__":
    main()
