"""The errors of a log on disk."""


class StoreError(Exception):
    """The log cannot be used; the text gives the reason and names the file."""


class LogDamaged(StoreError):  # noqa: N818  the plain word is clear
    """Synced bytes are not readable any more; starting would lose confirmed messages.

    `path`: the file. `offset`: the beginning of the damage, in bytes. `problem`: the kind of damage.
    `amqpd check` reports all damage.
    """

    def __init__(self, path: str, offset: int, problem: str) -> None:
        super().__init__(f"{path} is damaged at offset {offset}: {problem}")
        self.path = path
        self.offset = offset


class LogVersionUnknown(StoreError):  # noqa: N818  the plain word is clear
    """The log was written by a newer program in a format that this program does not read."""


class LogLocked(StoreError):  # noqa: N818  the plain word is clear
    """Another process uses the folder."""
