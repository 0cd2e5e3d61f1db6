"""A real Prometheus scrapes the broker: our dashboard and alerts, and what RabbitMQ's dashboards read."""

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.support.admin.api import Api, amqp, fetch
from tests.support.admin.prometheus import running_prometheus, tool
from tests.support.daemon.daemon import PATIENCE_S, Daemon

FOLDER = Path("docker/grafana")
DASHBOARD = FOLDER / "dashboards" / "amqpd.json"
WINDOW = "10s"

# the metrics of RabbitMQ's dashboard `RabbitMQ-Overview`, by kind
COUNTERS = [
    "channels_closed_total",
    "channels_opened_total",
    "connections_closed_total",
    "connections_opened_total",
    "queues_created_total",
    "queues_declared_total",
    "queues_deleted_total",
    "global_messages_acknowledged_total",
    "global_messages_confirmed_total",
    "global_messages_delivered_total",
    "global_messages_delivered_consume_auto_ack_total",
    "global_messages_delivered_consume_manual_ack_total",
    "global_messages_delivered_get_auto_ack_total",
    "global_messages_delivered_get_manual_ack_total",
    "global_messages_get_empty_total",
    "global_messages_received_confirm_total",
    "global_messages_received_total",
    "global_messages_redelivered_total",
    "global_messages_routed_total",
    "global_messages_unroutable_dropped_total",
    "global_messages_unroutable_returned_total",
    "message_size_bytes_bucket",
    "message_size_bytes_count",
    "message_size_bytes_sum",
]
GAUGES = [
    "channels",
    "connections",
    "queues",
    "queue_messages_ready",
    "queue_messages_unacked",
    "global_consumers",
    "global_publishers",
    "disk_space_available_bytes",
    "disk_space_available_limit_bytes",
    "erlang_uptime_seconds",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "resident_memory_limit_bytes",
]
PAIRS = (
    "disk_space_available_bytes - rabbitmq_disk_space_available_limit_bytes",
    "process_max_fds - rabbitmq_process_open_fds",
    "resident_memory_limit_bytes - rabbitmq_process_resident_memory_bytes",
    f"global_messages_delivered_consume_auto_ack_total[{WINDOW}]) + "
    f"rate(rabbitmq_global_messages_delivered_consume_manual_ack_total[{WINDOW}]",
    f"global_messages_received_confirm_total[{WINDOW}]) - "
    f"rate(rabbitmq_global_messages_confirmed_total[{WINDOW}]",
    "erlang_uptime_seconds * on(instance, job) group_left(rabbitmq_version, erlang_version) "
    "rabbitmq_build_info",
)
"""Metrics that are combined, so that their labels must be the same."""

STOPPED = re.compile("Queues that grow|without consumers")
"""Panels that may show nothing."""


@pytest.mark.parametrize(
    "command",
    [
        ["check", "config", "prometheus.yaml"],
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts_test.yaml"],
    ],
    ids=" ".join,
)
def test_the_configuration_and_the_alerts_are_right(command: list[str]) -> None:
    done = subprocess.run([tool("promtool"), *command], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_names_metrics_of_the_broker(daemon: Daemon) -> None:
    families = "&".join(f"family={name}" for name in ("queue_coarse_metrics", "queue_consumer_count"))
    shown = fetch(f"{daemon.admin}/metrics").text + fetch(f"{daemon.admin}/metrics/detailed?{families}").text
    for name in set(re.findall(r"\b(?:amqpd|process)_[a-z_]+", (FOLDER / "alerts.yaml").read_text())):
        assert f"\n# TYPE {name.removesuffix('_bucket')} " in shown, name


@pytest.mark.parametrize(
    "path", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"]
)
def test_promtool_finds_nothing_wrong_with_a_scrape(daemon: Daemon, path: str) -> None:
    text = fetch(f"{daemon.admin}{path}").text
    done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True)
    # RabbitMQ's names are not ours to choose, and two of our own are older than the rule
    names = r"^(rabbitmq_|amqpd_queue_messages_(lost_at_restart|duplicate) |process_)"
    wrong = [line for line in done.stderr.splitlines() if not re.match(names, line)]
    assert wrong == []


class Traffic(threading.Thread):
    """A client that does everything that the dashboards show, again and again."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self._daemon = daemon
        self._over = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with amqp(self._daemon.address, "/") as lasting:
                lasting.queue_declare("kept", durable=True)
                lasting.basic_consume("watched", lambda *_: None)
                while not self._over.is_set():
                    self._once(lasting)
        except Exception as error:
            self.error = error

    def _once(self, lasting: Any) -> None:
        for size in (10, 2_000):
            lasting.basic_publish("", "kept", b"x" * size, pika.BasicProperties(delivery_mode=2))
        with amqp(self._daemon.address, "/") as channel:
            channel.queue_declare("passing", auto_delete=True)
            for _ in range(4):
                channel.basic_publish("", "passing", b"x")
            channel.basic_publish("", "nowhere", b"")
            with suppress(pika.exceptions.UnroutableError):
                channel.basic_publish("", "nowhere", b"", mandatory=True)
            got, _, _ = channel.basic_get("passing")
            channel.basic_nack(got.delivery_tag)
            channel.basic_get("passing", auto_ack=True)
            for auto in (False, True):
                for method, _, _ in channel.consume("passing", auto_ack=auto, inactivity_timeout=30):
                    if not auto:
                        channel.basic_ack(method.delivery_tag)
                    break
                channel.cancel()
                channel.queue_declare("passing")
                channel.basic_publish("", "passing", b"x")
            channel.queue_purge("passing")
            channel.basic_get("passing")
            channel.queue_delete("passing")

    def stop(self) -> None:
        """End, and raise the error of the client, if there is one."""
        self._over.set()
        self.join(PATIENCE_S)
        if self.error is not None:
            raise self.error


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker with one of everything that forwards, dispatches or reads, under load."""
    options = ("--dispatch-allow", "/usr/bin/tee", "--journal", "full")
    daemon = Daemon(tmp_path_factory.mktemp("scraped"), options)
    daemon.wait_until_ready().load_api()
    api = Api(daemon.admin)
    api.put("queues", "/", "watched")
    api.put("queues", "/", "there")
    api.put("dispatchers", "/", "d", queue="watched", command="/usr/bin/tee")
    shovel = {"src-queue": "watched", "dest-queue": "there", "src-uri": "amqp://", "dest-uri": "amqp://"}
    api.put("parameters", "shovel", "/", "s", body={"value": shovel})
    api.put("parameters", "federation-upstream", "/", "up", body={"value": {"uri": "amqp://127.0.0.1:1"}})
    api.put(
        "policies", "/", "federate", body={"pattern": "^fed$", "definition": {"federation-upstream": "up"}}
    )
    api.put("exchanges", "/", "fed", type="fanout")
    remote = {"x-remote": "amqp://127.0.0.1:1/%2F/far", "x-remote-mode": "hybrid"}
    api.put("queues", "/", "far", durable=True, arguments=remote)
    report = {"partitions": [{"queue": "q", "partition": 0, "next": 3, "end": 10}]}
    api.put("readers", "/", "r", status=204, body=report)
    traffic = Traffic(daemon)
    traffic.start()
    yield daemon
    traffic.stop()
    api.close()
    daemon.stop()


Query = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def query(broker: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """Run Prometheus with our configuration; return a function from an expression to its samples."""
    folder = tmp_path_factory.mktemp("prometheus")
    host = broker.admin.removeprefix("http://")
    text = (FOLDER / "prometheus.yaml").read_text().replace("amqpd:15672", host).replace("15s", "1s")
    (folder / "prometheus.yaml").write_text(text)
    shutil.copy(FOLDER / "alerts.yaml", folder)
    with running_prometheus(folder) as prometheus:
        deadline = time.monotonic() + PATIENCE_S
        while prometheus.scrapes() < 15:
            assert time.monotonic() < deadline, prometheus.log()
            time.sleep(0.5)
        yield prometheus.query


def test_prometheus_scrapes_both_jobs(query: Query) -> None:
    up = {(each["metric"]["job"], each["value"][1]) for each in query("up")}
    assert up == {("amqpd", "1"), ("amqpd-queues", "1")}


def panels() -> list[tuple[str, str]]:
    """The titles and expressions of our dashboard."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], target["expr"]) for panel in found for target in panel.get("targets", ())]


def test_every_panel_of_our_dashboard_shows_something(query: Query) -> None:
    shown = panels()
    assert len(shown) > 50
    for title, expression in shown:
        for name, value in (
            ("$__rate_interval", WINDOW),
            ("$__range", WINDOW),
            ("$job", "amqpd"),
            ("$instance", ".*"),
        ):
            expression = expression.replace(name, value)
        found = query(expression)
        assert found or STOPPED.search(title), (title, expression)
        if "quantile" not in expression or "size" in expression:
            assert all(each["value"][1] != "NaN" for each in found), (title, expression)


def test_every_metric_of_rabbitmqs_overview_has_data(query: Query) -> None:
    (identity,) = query('rabbitmq_identity_info{rabbitmq_endpoint="aggregated"}')
    cluster = identity["metric"]["rabbitmq_cluster"]
    joined = (
        "* on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) "
        f'rabbitmq_identity_info{{rabbitmq_cluster="{cluster}", namespace="", '
        'rabbitmq_endpoint="aggregated"}'
    )
    expressions = [f"rabbitmq_{name}" for name in GAUGES]
    expressions += [f"rate(rabbitmq_{name}[{WINDOW}])" for name in COUNTERS]
    expressions += [f"(rate(rabbitmq_{pair}))" if "[" in pair else f"(rabbitmq_{pair})" for pair in PAIRS]
    assert len({*GAUGES, *COUNTERS, "identity_info", "build_info"}) == 40
    for expression in expressions:
        found = query(f"sum({expression} {joined}) by(rabbitmq_node)")
        assert found, expression
        assert found[0]["metric"] == {"rabbitmq_node": identity["metric"]["rabbitmq_node"]}
    for name in COUNTERS:
        grown = query(f"sum(increase(rabbitmq_{name}[{WINDOW}]))")
        assert float(grown[0]["value"][1]) > 0, name


def test_the_alerts_are_loaded_and_only_the_right_ones_fire(query: Query) -> None:
    firing = {each["metric"]["alertname"] for each in query('ALERTS{alertstate="firing"}')}
    assert firing <= {"AmqpdForwardingStopped", "AmqpdDeadLettersDropped"}
