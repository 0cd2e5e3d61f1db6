"""What definitions say of a broker when they are exported."""

import json

from broker.admin.definitions.exporter import export_pieces
from broker.auth.passwords import make_password
from broker.core.policies.policy import Policy
from tests.definitions import Place, of_rabbitmq


def test_what_is_exported_makes_the_same_elsewhere() -> None:
    place, other = Place(), Place()
    place.take(of_rabbitmq())
    place.users.add("own", make_password("secret", 5000), ("monitoring",), loopback_only=True)
    document = place.document()
    other.take(document)
    assert other.document() == document
    assert other.users.known("own").password == place.users.known("own").password
    assert other.users.known("own").loopback_only
    assert set(document) >= {"users", "vhosts", "permissions", "parameters", "policies", "queues", "bindings"}


def test_a_queue_keeps_its_type_where_queues_are_of_another_one() -> None:
    place, other = Place(), Place()
    place.broker.vhosts["/"].declarations.declare_queue("old", True, None, False, {})
    place.broker.describe_vhost("/", "", (), "quorum")
    other.take(place.document())
    (queue,) = other.broker.vhosts["/"].topology.queues.values()
    assert queue.arguments == {"x-queue-type": "classic"}


def test_one_virtual_host_is_exported_without_its_name_and_imported_elsewhere() -> None:
    place = Place()
    place.take(of_rabbitmq())
    document = place.document("shop")
    assert "users" not in document
    assert '"vhost":' not in json.dumps(document)
    place.broker.declare_vhost("copy")
    place.take(document, "copy")
    assert place.document("copy") == document


def test_what_one_virtual_host_is_like_is_exported_with_it() -> None:
    place = Place()
    place.broker.describe_vhost("/", "the shop", ("t",), "quorum")
    place.broker.declare_vhost("copy")
    place.take(place.document("/"), "copy")
    copy = place.broker.vhosts["copy"]
    assert (copy.description, copy.tags, copy.default_queue_type) == ("the shop", ("t",), "quorum")


def test_exclusive_and_generated_names_are_not_exported() -> None:
    place = Place()
    vhost = place.broker.vhosts["/"]
    vhost.declarations.declare_queue("mine", False, object(), False, {})
    vhost.declarations.bind_queue("mine", "amq.fanout", "", {}, vhost.topology.queues["mine"].exclusive_owner)
    generated = vhost.declarations.declare_queue("", True, None, False, {})
    vhost.declarations.bind_queue(generated.name, "amq.fanout", "", {})
    document = place.document()
    assert (document["queues"], document["bindings"], document["exchanges"]) == ([], [], [])


def test_what_changes_during_an_export_does_not_break_it_off() -> None:
    place = Place()
    place.take(of_rabbitmq())
    vhost = place.broker.vhosts["shop"]
    pieces: list[str] = []
    for number, piece in enumerate(export_pieces(place.broker, place.users, "1")):
        pieces.append(piece)
        name = f"new{number}"
        if number == 5:
            vhost.declarations.delete_queue("audit", False, False)
        place.broker.declare_vhost(name)
        for user in place.users.names():
            place.users.permit(user, name, "", "", "")
            place.users.permit_topic(user, name, "x", "", "")
        vhost.declarations.declare_queue(name, True, None, False, {})
        vhost.declarations.declare_exchange(name, "fanout", True, False, False, {})
        vhost.declarations.bind_queue(name, "shop.events", "k", {})
        vhost.declarations.bind_exchange(name, "shop.events", "k", {})
        vhost.declarations.bind_exchange("amq.fanout", name, "k", {})
        place.broker.parameters.set(name, 1)
        vhost.policies.set(Policy(name, "", {"expires": 1}))
    document = json.loads("".join(pieces))
    assert {queue["name"] for queue in document["queues"]} >= {"orders", "live"}
    other = Place()
    other.take(document)
    assert set(other.broker.vhosts) == {"/", "shop"}
