"""Statistics over HTTP: the counts of real clients, and all fields that RabbitMQ's tools take for granted."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import Address

RATES = "publish deliver deliver_no_ack get get_no_ack get_empty deliver_get redeliver ack"

FIELDS = {
    "overview": "management_version rates_mode sample_retention_policies exchange_types product_version "
    "product_name rabbitmq_version cluster_name erlang_version erlang_full_version disable_stats "
    "enable_queue_totals default_queue_type release_series_support_status message_stats churn_rates "
    "queue_totals object_totals statistics_db_event_queue node listeners contexts",
    "node": "partitions os_pid fd_total sockets_total mem_limit mem_alarm disk_free_limit disk_free_alarm "
    "proc_total rates_mode uptime run_queue processors exchange_types auth_mechanisms applications contexts "
    "log_files db_dir config_files net_ticktime enabled_plugins mem_calculation_strategy name type running "
    "being_drained mem_used mem_used_details fd_used fd_used_details sockets_used sockets_used_details "
    "proc_used proc_used_details disk_free disk_free_details gc_num gc_num_details context_switches "
    "context_switches_details io_read_count io_read_bytes io_read_avg_time io_write_count io_write_bytes "
    "io_write_avg_time io_sync_count io_sync_avg_time io_seek_count io_reopen_count msg_store_read_count "
    "msg_store_write_count connection_created connection_created_details connection_closed channel_created "
    "channel_closed queue_declared queue_created queue_deleted queue_deleted_details cluster_links "
    "metrics_gc_queue_length",
    "queue": "active_consumers arguments auto_delete consumer_capacity consumer_utilisation consumers "
    "durable effective_policy_definition exclusive exclusive_consumer_tag "
    "head_message_timestamp idle_since memory message_bytes message_bytes_paged_out "
    "message_bytes_persistent message_bytes_ram message_bytes_ready "
    "message_bytes_unacknowledged message_stats messages messages_details messages_paged_out "
    "messages_persistent messages_ram messages_ready messages_ready_details messages_ready_ram "
    "messages_unacknowledged messages_unacknowledged_details messages_unacknowledged_ram name "
    "node operator_policy policy recoverable_slaves single_active_consumer_tag state type vhost",
    "one queue": "consumer_details deliveries incoming",
    "exchange": "arguments auto_delete durable internal message_stats name type user_who_performed_action "
    "vhost",
    "one exchange": "incoming outgoing",
    "connection": "auth_mechanism channel_max channels client_properties connected_at frame_max host name "
    "node peer_cert_issuer peer_cert_subject peer_cert_validity peer_host peer_port port protocol recv_cnt "
    "recv_oct recv_oct_details send_cnt send_oct send_oct_details send_pend ssl ssl_cipher ssl_hash "
    "ssl_key_exchange ssl_protocol state timeout type user user_provided_name user_who_performed_action "
    "vhost",
    "channel": "acks_uncommitted confirm connection_details consumer_count global_prefetch_count idle_since "
    "message_stats messages_unacknowledged messages_uncommitted messages_unconfirmed name node number "
    "pending_raft_commands prefetch_count state transactional user user_who_performed_action vhost",
    "one channel": "consumer_details deliveries publishes",
    "vhost": "cluster_state default_queue_type description message_stats messages messages_details "
    "messages_ready messages_ready_details messages_unacknowledged messages_unacknowledged_details metadata "
    "name recv_oct recv_oct_details send_oct send_oct_details tags tracing",
    "quorum queue": "leader members online delivery_limit open_files",
    "stream": "leader members online",
}
"""The fields of each kind of object, separated by spaces."""


def lacking(kind: str, shown: Mapping[str, Any]) -> set[str]:
    """The fields that an object should have and has not."""
    return set(FIELDS[kind].split()) - set(shown)


def counts(shown: Mapping[str, Any]) -> dict[str, int]:
    """The message_stats that are not 0; each has its rate."""
    stats = shown["message_stats"]
    for name in [name for name in stats if not name.endswith("_details")]:
        assert isinstance(stats[f"{name}_details"]["rate"], float), name
    return {name: n for name, n in stats.items() if not name.endswith("_details") and n}


def test_each_kind_of_delivery_is_counted(api: Api, vhost: str, address: Address) -> None:
    before = counts(api.get("overview"))
    with amqp(address, vhost) as channel:
        channel.exchange_declare("x", "fanout")
        channel.queue_declare("q")
        channel.queue_declare("r")
        for queue in ("q", "r"):
            channel.queue_bind(queue, "x")
        for _ in range(10):
            channel.basic_publish("x", "", b"0123456789")
        method, *_ = channel.basic_get("q")
        assert method is not None
        channel.basic_nack(method.delivery_tag)
        method, *_ = channel.basic_get("q")
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        channel.basic_get("q", auto_ack=True)
        channel.queue_declare("empty")
        assert channel.basic_get("empty") == (None, None, None)
        channel.basic_qos(prefetch_count=3)
        channel.basic_consume("q", lambda *_: None, consumer_tag="by hand")
        channel.connection.process_data_events()
        channel.basic_consume("r", lambda *_: None, auto_ack=True)
        channel.connection.process_data_events()
        channel.basic_ack(0, multiple=True)
        channel.connection.process_data_events()
        channel.basic_publish("x", "", b"")  # the answer comes after all that was sent before
        queue, other = api.get("queues", vhost, "q"), api.get("queues", vhost, "r")
        name = queue["consumer_details"][0]["channel_details"]["name"]
        shown, whole = api.get("channels", name), api.get("overview")
        exchange, host = api.get("exchanges", vhost, "x"), api.get("vhosts", vhost)
    assert counts(queue) == {
        "publish": 11,
        "get": 2,
        "get_no_ack": 1,
        "deliver": 6,
        "deliver_get": 9,
        "redeliver": 1,
        "ack": 4,
    }
    assert counts(other) == {"publish": 11, "deliver_no_ack": 11, "deliver_get": 11}
    assert counts(exchange) == {"publish_in": 11, "publish_out": 22}
    assert counts(shown) == {
        "publish": 11,
        "confirm": 11,
        "get": 2,
        "get_no_ack": 1,
        "get_empty": 1,
        "deliver": 6,
        "deliver_no_ack": 11,
        "deliver_get": 20,
        "redeliver": 1,
        "ack": 4,
    }
    assert counts(host) == {
        "publish": 22,
        "get": 2,
        "get_no_ack": 1,
        "get_empty": 1,
        "deliver": 6,
        "deliver_no_ack": 11,
        "deliver_get": 20,
        "redeliver": 1,
        "ack": 4,
    }
    after = counts(whole)
    grown = {name: after[name] - before.get(name, 0) for name in counts(shown)}
    assert grown == counts(shown)
    assert (queue["messages_ready"], queue["messages_unacknowledged"]) == (3, 3)
    assert [each["messages_delivered"] for each in queue["consumer_details"]] == [6]


def test_unroutable_messages_are_counted_by_channel(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.basic_publish("", "nowhere", b"")
        channel.basic_publish("", "nowhere", b"", mandatory=False)
        channel.queue_declare("q")
        channel.basic_consume("q", lambda *_: None)
        name = api.get("queues", vhost, "q")["consumer_details"][0]["channel_details"]["name"]
        assert counts(api.get("channels", name)) == {"publish": 2, "confirm": 2, "drop_unroutable": 2}


def test_the_bytes_of_a_connection(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        (first,) = api.get("vhosts", vhost, "connections")
        channel.basic_publish("", "q", b"x" * 100_000)
        (second,) = api.get("vhosts", vhost, "connections")
    assert 100_000 < second["recv_oct"] - first["recv_oct"] < 101_000
    assert 0 < second["send_oct"] - first["send_oct"] < 1000
    assert second["recv_cnt"] > first["recv_cnt"] > 0
    assert second["send_cnt"] > first["send_cnt"] > 0


def test_every_field_is_there(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
        channel.basic_consume("q", lambda *_: None)
        (consumer,) = api.get("consumers", vhost)
        (shown,) = api.get("vhosts", vhost, "channels")
        (connection,) = api.get("vhosts", vhost, "connections")
        assert lacking("channel", shown) == set()
        one = api.get("channels", shown["name"])
        assert lacking("channel", one) | lacking("one channel", one) == set()
        assert consumer["channel_details"]["node"] == shown["node"]
        assert lacking("connection", connection) == set()
        assert lacking("connection", api.get("connections", connection["name"])) == set()
    queues = {queue["name"]: queue for queue in api.get("queues", vhost)}
    assert [lacking("queue", queues[name]) for name in ("q", "quorum", "stream")] == [
        set(),
        {"recoverable_slaves"},
        {"recoverable_slaves"},
    ]
    assert lacking("quorum queue", queues["quorum"]) == lacking("stream", queues["stream"]) == set()
    assert set(RATES.split()) <= set(queues["q"]["message_stats"])
    assert lacking("one queue", api.get("queues", vhost, "q")) == set()
    exchange = api.get("exchanges", vhost, "amq.direct")
    assert lacking("exchange", exchange) | lacking("one exchange", exchange) == set()
    assert lacking("vhost", api.get("vhosts", vhost)) == set()
    (node,) = api.get("nodes")
    assert lacking("node", node) == set()
    assert lacking("overview", api.get("overview")) == set()


def test_a_history_of_a_queue(api: Api, vhost: str, address: Address) -> None:
    span = {"lengths_age": "60", "lengths_incr": "5", "msg_rates_age": "60", "msg_rates_incr": "5"}
    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        api.get("queues", vhost, "q", **span)
        channel.basic_publish("", "q", b"")
        until = time.monotonic() + 60
        while True:
            shown = api.get("queues", vhost, "q", **span)
            samples = shown["messages_details"]["samples"]
            if samples and samples[0]["sample"] == 1:
                break
            assert time.monotonic() < until
            time.sleep(0.5)
    assert samples[0]["timestamp"] % 5000 == 0
    assert samples[0]["timestamp"] - samples[-1]["timestamp"] == 5000 * (len(samples) - 1)
    assert shown["messages_details"]["avg"] > 0
    published = shown["message_stats"]["publish_details"]
    assert published["samples"][0]["sample"] == 1
    for what in ("overview", "nodes"):
        api.get(what, **span)


@pytest.mark.parametrize(
    ("age", "incr"), [("x", "5"), ("60", "0"), ("60", "-5"), ("86400", "1"), ("²", "1"), ("1" * 30, "1")]
)
def test_a_history_that_cannot_be(api: Api, age: str, incr: str) -> None:
    refused = api.refused(400, "GET", "overview", lengths_age=age, lengths_incr=incr)
    assert "lengths_age" in refused["reason"]


def test_a_timestamp_at_the_head_of_a_queue(api: Api, vhost: str, address: Address) -> None:
    import pika

    with amqp(address, vhost) as channel:
        channel.queue_declare("q")
        assert api.get("queues", vhost, "q")["head_message_timestamp"] is None
        for at in (1_700_000_000, 1_800_000_000):
            channel.basic_publish("", "q", b"", pika.BasicProperties(timestamp=at))
        assert api.get("queues", vhost, "q")["head_message_timestamp"] == 1_700_000_000


def test_the_tags_of_consumers_that_are_served_alone(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("single", arguments={"x-single-active-consumer": True})
        channel.queue_declare("exclusive")
        for tag in ("first", "second"):
            channel.basic_consume("single", lambda *_: None, consumer_tag=tag)
        channel.basic_consume("exclusive", lambda *_: None, consumer_tag="alone", exclusive=True)
        shown = {queue["name"]: queue for queue in api.get("queues", vhost)}
    assert shown["single"]["single_active_consumer_tag"] == "first"
    assert shown["single"]["exclusive_consumer_tag"] is None
    assert shown["exclusive"]["exclusive_consumer_tag"] == "alone"
    assert shown["exclusive"]["single_active_consumer_tag"] is None
    assert {name: (each["consumers"], each["active_consumers"]) for name, each in shown.items()} == {
        "single": (2, 1),
        "exclusive": (1, 1),
    }


def test_an_exclusive_queue_names_its_connection(api: Api, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as channel:
        channel.queue_declare("own", exclusive=True)
        channel.queue_declare("shared")
        (connection,) = api.get("vhosts", vhost, "connections")
        queues = {queue["name"]: queue for queue in api.get("queues", vhost)}
    own = {name: connection[name] for name in ("name", "peer_host", "peer_port")}
    assert queues["own"]["owner_pid_details"] == own
    assert "owner_pid_details" not in queues["shared"]


def test_memory_by_its_uses(api: Api) -> None:
    node = api.get("overview")["node"]
    uses = api.get("nodes", node, "memory")["memory"]
    total = uses.pop("total")
    assert uses.pop("strategy") == "rss"
    assert sum(uses.values()) == total["erlang"] <= total["rss"] + 1
    shares = api.get("nodes", node, "memory", "relative")["memory"]
    assert shares["total"] == 100
    assert shares["other_system"] > 50
    api.refused(404, "GET", "nodes", "elsewhere", "memory")


def test_a_protected_virtual_host_is_not_deleted(api: Api, vhost: str) -> None:
    assert api.ask("POST", "vhosts", vhost, "deletion", "protection").status_code == 204
    shown = api.get("vhosts", vhost)
    assert shown["metadata"]["protected_from_deletion"] is True
    assert "protected" in api.refused(412, "DELETE", "vhosts", vhost)["reason"]
    exported = {each["name"]: each for each in api.get("definitions")["vhosts"]}
    assert exported[vhost]["metadata"]["protected_from_deletion"] is True
    api.delete("vhosts", vhost, "deletion", "protection")
    assert "protected_from_deletion" not in api.get("vhosts", vhost)["metadata"]
    api.delete("vhosts", vhost)
    api.put("vhosts", vhost)


def test_log_ins_by_protocol(api: Api, vhost: str, address: Address) -> None:
    node = api.get("overview")["node"]
    assert api.ask("DELETE", "auth", "attempts", node).status_code == 204
    with amqp(address, vhost):
        pass
    stranger = Api(api.base, "guest", "wrong")
    stranger.refused(401, "GET", "whoami")
    stranger.close()
    found = {each.pop("protocol"): each for each in api.get("auth", "attempts", node)}
    assert found["amqp091"] == {
        "auth_attempts": 1,
        "auth_attempts_succeeded": 1,
        "auth_attempts_failed": 0,
    }
    assert found["http"]["auth_attempts_failed"] == 1
    assert api.get("auth", "attempts", node, "source") == []


def test_a_hash_that_a_user_can_be_made_with(api: Api, vhost: str) -> None:
    hashed = api.get("auth", "hash_password", "sécret/word")["ok"]
    api.put("users", f"{vhost}.hashed", password_hash=hashed, tags="management")
    other = Api(api.base, f"{vhost}.hashed", "sécret/word")
    assert other.get("whoami")["name"] == f"{vhost}.hashed"
    other.close()
    api.delete("users", f"{vhost}.hashed")


def test_feature_flags(api: Api) -> None:
    flags = {flag["name"]: flag for flag in api.get("feature-flags")}
    assert flags["stream_queue"]["state"] == "enabled"
    assert set(flags["stream_queue"]) == {"name", "desc", "doc_url", "state", "stability", "provided_by"}
    api.put("feature-flags", "stream_queue", "enable", status=204)
    api.refused(404, "PUT", "feature-flags", "no_such_flag", "enable")


@pytest.mark.parametrize(
    "path", ["healthchecks/node", "health/checks/reached-target-cluster-size", "health/checks/metadata-store"]
)
def test_further_health_checks(api: Api, path: str) -> None:
    parts = [*path.split("/")] + (["initialized", "with-data"] if path.endswith("store") else [])
    assert api.get(*parts)["status"] == "ok"
    api.refused(404, "GET", "healthchecks", "node", "elsewhere")


def test_certificates_that_expire(api: Api) -> None:
    assert api.get("health", "checks", "certificate-expiration", "1", "months")["status"] == "ok"
    assert (
        "decades"
        in api.refused(400, "GET", "health", "checks", "certificate-expiration", "1", "decades")["reason"]
    )
