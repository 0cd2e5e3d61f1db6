"""Definitions that are imported when the broker starts. [RabbitMQ load_definitions]"""

import hashlib
from pathlib import Path
from typing import Final

import structlog

from broker.admin.definitions.importing import DefinitionsError, clear_passwords, import_steps
from broker.admin.json_reading import JsonError, read_json
from broker.auth.passwords import make_password
from broker.auth.users import Users
from broker.core.broker import Broker

LOADED: Final = "internal_loaded_definitions"
"""The global parameter that keeps the digest of what was loaded last."""

_log = structlog.get_logger("amqpd")


class LoadError(OSError):
    """The definitions cannot be loaded; the text names the file, and each object that is wrong."""


def load(path: Path, skip_unchanged: bool, broker: Broker, users: Users) -> None:
    """Import a file, all or nothing, unless it is the one that was loaded last and that need not be.

    Raises LoadError.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LoadError(f"load_definitions: {path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    if skip_unchanged and broker.parameters.get(LOADED) == digest:
        _log.info("definitions are those loaded before", file=str(path))
        return
    try:
        document = read_json(content)
    except JsonError as error:
        raise LoadError(f"load_definitions: {path}: {error}") from error
    passwords = {user: make_password(password) for user, password in clear_passwords(document).items()}
    try:
        for _ in import_steps(document, broker, users, passwords):
            pass
    except DefinitionsError as error:
        lines = [f"load_definitions: {path} is not loaded:", *error.problems]
        raise LoadError("\n".join(lines)) from error
    broker.parameters.set(LOADED, digest)
    broker.apply_policies()
    _log.info("definitions loaded", file=str(path))
