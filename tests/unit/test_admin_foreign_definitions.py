"""Definitions that RabbitMQ has written."""

from tests.definitions import Place, of_rabbitmq
from tests.topology import routed


def test_what_rabbitmq_exports_is_imported() -> None:
    place = Place()
    place.take(of_rabbitmq())
    vhost = place.broker.vhosts["shop"]
    assert (vhost.description, vhost.tags, vhost.queues_max) == ("the shop", ("prod",), 100)
    assert set(vhost.topology.queues) == {"orders", "audit", "live"}
    assert vhost.topology.queues["orders"].effective == {"x-message-ttl": 60000, "x-max-length": 500000}
    assert vhost.topology.queues["live"].auto_delete
    assert routed(vhost, "shop.events", "order.new") == ["orders"]
    assert vhost.topology.exchanges["shop.lost"].internal
    shop = place.users.known("shop")
    assert (shop.tags, shop.limits) == (("management", "policymaker"), {"max-connections": 100})
    assert shop.permissions["shop"].configure == r"^shop\."
    assert shop.topics["shop", "amq.topic"].write == r"^{username}\."
    assert place.users.known("watcher").tags == ("monitoring",)
    assert place.users.known("guest").loopback_only
    assert place.broker.parameters.get("cluster_name") == "rabbit@shop"


def test_importing_twice_changes_nothing() -> None:
    place = Place()
    place.take(of_rabbitmq())
    changes = list(place.store.changes)
    place.take(of_rabbitmq())
    place.take(place.document())
    assert place.store.changes == changes


def test_what_rabbitmq_4_exports_is_imported() -> None:
    place = Place()
    metadata = {"description": "the shop", "tags": ["prod"], "default_queue_type": "quorum"}
    said = {"description": "the shop", "tags": ["prod"], "default_queue_type": "quorum", "limits": []}
    place.take(
        {
            "rabbit_version": "4.1.0",
            "rabbitmq_version": "4.1.0",
            "product_name": "RabbitMQ",
            "product_version": "4.1.0",
            "rabbitmq_definition_format": "cluster",
            "original_cluster_name": "rabbit@shop",
            "explanation": "Definitions of cluster 'rabbit@shop'",
            "users": [
                {
                    "name": "u",
                    "password_hash": "",
                    "hashing_algorithm": "rabbit_password_hashing_sha256",
                    "tags": ["management"],
                    "limits": {},
                }
            ],
            "vhosts": [
                {"name": "shop", "metadata": metadata | {"protected_from_deletion": False}, **said},
                {"name": "plain", "default_queue_type": "quorum"},
            ],
            "global_parameters": [{"name": "cluster_tags", "value": []}],
            "queues": [
                {
                    "name": "q",
                    "vhost": "shop",
                    "durable": True,
                    "auto_delete": False,
                    "type": "quorum",
                    "arguments": {"x-queue-type": "quorum"},
                }
            ],
        }
    )
    shop = place.broker.vhosts["shop"]
    assert (shop.description, shop.tags, shop.default_queue_type) == ("the shop", ("prod",), "quorum")
    assert place.broker.vhosts["plain"].default_queue_type == "quorum"
