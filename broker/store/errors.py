"""What can be wrong with a log on disk."""


class StoreError(Exception):
    """The log cannot be used; the text says why and names the file."""


class LogDamaged(StoreError):  # noqa: N818  the plain word says it
    """Bytes that had been synced no longer read back; starting would lose what was confirmed.

    `path` is the file, `offset` where the damage begins, in bytes; `amqpd check` says what it holds.
    """

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path} is damaged at offset {offset}: {what}")
        self.path = path
        self.offset = offset


class LogVersionUnknown(StoreError):  # noqa: N818  the plain word says it
    """The log was written by a newer program in a format that this one does not read."""


class LogLocked(StoreError):  # noqa: N818  the plain word says it
    """Another process uses the folder."""
