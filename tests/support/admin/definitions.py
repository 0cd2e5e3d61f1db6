"""A broker with users, and definitions of every kind."""

import json
from pathlib import Path
from typing import Any

from broker.admin.definitions.exporter import ForRabbitMQ, export_pieces, export_vhost_pieces
from broker.admin.definitions.importer import DefinitionsError, Skipped, import_steps
from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.dispatch.dispatchers import Dispatchers
from config.targets import AllowList
from tests.support.core.topology import RecordingStore, new_broker

RABBITMQ = Path(__file__).parents[2] / "golden" / "rabbitmq_3_definitions.json"


class DefinitionsBench:
    """A broker with users, and a store that records the changes."""

    def __init__(self) -> None:
        self.store = RecordingStore()
        self.broker: Broker = new_broker(self.store)
        self.users = Users(self.store)
        self.dispatchers = Dispatchers(self.broker, AllowList(["http://localhost/hooks", "/bin/true"]))
        self.broker.declare_vhost("/")

    def take(
        self,
        document: object,
        vhost: str | None = None,
        passwords: dict[str, Password] | None = None,
        skipped: Skipped | None = None,
    ) -> None:
        """Import definitions; `skipped`: pass over what the broker does not have."""
        parts = self.broker, self.users, self.dispatchers
        for _ in import_steps(document, *parts, passwords or {}, vhost, skipped):
            pass
        self.broker.apply_policies()

    def passed_over(self, document: object, vhost: str | None = None) -> list[str]:
        """Import definitions; return a line for each object or part that was passed over."""
        skipped = Skipped()
        self.take(document, vhost, skipped=skipped)
        return skipped.lines

    def problems(self, document: object, vhost: str | None = None) -> list[str]:
        """Return the problems of definitions; fails if the refused import changed anything."""
        before = len(self.store.changes), self.document()
        try:
            self.take(document, vhost)
        except DefinitionsError as error:
            assert (len(self.store.changes), self.document()) == before
            return error.problems
        raise AssertionError("the definitions were taken")

    def document(self, vhost: str | None = None, adaptation: ForRabbitMQ | None = None) -> Any:
        """Return all definitions, as an export has them."""
        if vhost is not None:
            pieces = export_vhost_pieces(self.broker.vhosts[vhost], self.dispatchers, "1.2.3", adaptation)
        else:
            pieces = export_pieces(self.broker, self.users, self.dispatchers, "1.2.3", adaptation)
        return json.loads("".join(pieces))


def definitions_of_rabbitmq() -> Any:
    """Return the definitions that RabbitMQ 3 has exported."""
    return json.loads(RABBITMQ.read_text())
