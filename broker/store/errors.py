"""The errors of a log on disk."""


class StoreError(Exception):
    """The log cannot be used; the text gives the reason and names the file."""


class LogDamaged(StoreError):  # noqa: N818  the plain word says it
    """Synced bytes are not readable any more; starting would lose confirmed messages.

    `path` is the file, `offset` the beginning of the damage, in bytes; `amqpd check` reports the damage.
    """

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path} is damaged at offset {offset}: {what}")
        self.path = path
        self.offset = offset


class LogVersionUnknown(StoreError):  # noqa: N818  the plain word says it
    """The log was written by a newer program in a format that this one does not read."""


class LogLocked(StoreError):  # noqa: N818  the plain word says it
    """Another process uses the folder."""
