"""Answers of the HTTP API as tools of RabbitMQ read them: the paths they ask for, the fields they need.

Each table lists the fields of one tool in the notation of `tests.support.admin.tool_shapes`. Sources:

- rabbitmqadmin v2: `src/responses/*.rs` of rabbitmq_http_client (rabbitmq-http-api-rs, 55ebcc0)
- EasyNetQ.Management.Client: `Source/EasyNetQ.Management.Client/Model/*.cs` (4879475)
- NServiceBus.RabbitMQ: `Administration/ManagementApi/Models/*.cs`, `BrokerVerifier.cs` (ec745bf)
- nagios-plugins-rabbitmq: `scripts/check_rabbitmq_*` (bc20bf8)
- Telegraf: `plugins/inputs/rabbitmq/rabbitmq.go` (df5d71d)
- Datadog: `rabbitmq/datadog_checks/rabbitmq/const.py` (03d2d30)
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.admin.api import Api
from tests.support.admin.estate import running_estate
from tests.support.admin.tool_shapes import Table, find_misfits

pytestmark = pytest.mark.amqpd_only("is about amqpd's HTTP API")

RABBITMQADMIN = {
    "Rate": "rate: number",
    "Totals": "messages messages_ready messages_unacknowledged: u64; messages_details "
    "messages_ready_details messages_unacknowledged_details: Rate",
    "Churn": "connection_created connection_closed queue_declared queue_created queue_deleted "
    "channel_created channel_closed: u32",
    "Objects": "connections channels queues exchanges consumers: u64",
    "Stats": "deliver_get_details publish_details deliver_no_ack_details redeliver_details "
    "confirm_details ack_details drop_unroutable_details return_unroutable_details: Rate",
    "Listener": "node protocol ip_address: text; port: u32",
    "Overview": "cluster_name node erlang_full_version erlang_version rabbitmq_version crypto_lib_version "
    "product_name product_version: text; cluster_tags node_tags: object; statistics_db_event_queue: u64; "
    "churn_rates: Churn; queue_totals: Totals; object_totals: Objects; message_stats: Stats; listeners: "
    "[Listener]",
    "Application": "name description version: text",
    "Node": "name os_pid rates_mode rabbitmq_version erlang_version erlang_full_version "
    "crypto_lib_version: text; uptime run_queue processors fd_total proc_total: u32; mem_limit "
    "disk_free_limit: u64; mem_alarm disk_free_alarm being_drained: flag; enabled_plugins: [text]; "
    "applications: [Application]",
    "Footprint": "memory: Breakdown",
    "MemoryTotals": "rss allocated erlang: u64",
    "Breakdown": "connection_readers connection_writers connection_channels connection_other queue_procs "
    "quorum_queue_procs stream_queue_procs stream_queue_replica_reader_procs "
    "stream_queue_coordinator_procs plugins metadata_store other_proc metrics mgmt_db mnesia quorum_ets "
    "metadata_store_ets binary msg_index code atom other_system allocated_unused reserved_unallocated: "
    "u64; other_ets: i64; strategy: text; total: MemoryTotals",
    "Queue": "name vhost type node state: text; durable auto_delete exclusive: flag; arguments: object; "
    "leader? exclusive_consumer_tag? policy? operator_policy?: text; members? online?: [text]; memory: "
    "u64; consumers: u16; consumer_utilisation: number; effective_policy_definition: object; "
    "message_bytes message_bytes_persistent message_bytes_ram message_bytes_ready "
    "message_bytes_unacknowledged messages messages_persistent messages_ram messages_unacknowledged: u64",
    "Page": "filtered_count item_count page page_count page_size total_count: u64; items: [Queue]",
    "Exchange": "name vhost type: text; durable auto_delete: flag; arguments: object",
    "Binding": "vhost source destination destination_type routing_key: text; arguments: object; "
    "properties_key?: text",
    "Capabilities": "authentication_failure_close~ basic.nack~ connection.blocked~ "
    "consumer_cancel_notify~ exchange_exchange_bindings~ publisher_confirms~: flag",
    "Client": "connection_name~ platform~ product~ version~: text; capabilities?: Capabilities",
    "Connection": "name node state protocol user host peer_host: text; connected_at: u64; port peer_port: "
    "u32; channel_max channels: u16; client_properties: Client",
    "UserConnection": "name node user vhost: text",
    "Peer": "name peer_host: text; peer_port: u32",
    "Channel": "number: u16; name vhost state: text; connection_details: Peer; consumer_count "
    "prefetch_count messages_unacknowledged messages_unconfirmed: u32; confirm: flag",
    "ChannelDetails": "number: u16; name connection_name node peer_host user: text; peer_port: u32",
    "QueueName": "name vhost: text",
    "Consumer": "consumer_tag: text; active ack_required exclusive: flag; prefetch_count: u32; arguments: "
    "object; consumer_timeout: u64; queue: QueueName; channel_details: object",
    "User": "name password_hash: text; tags: [text]",
    "CurrentUser": "name: text; tags: [text]",
    "Limits": "value: object; user~ vhost~: text",
    "Metadata": "tags?: [text]; description? default_queue_type?: text",
    "VirtualHost": "name: text; tags?: [text]; description? default_queue_type?: text; metadata?: Metadata",
    "Permissions": "user vhost configure read write: text",
    "TopicPermissions": "user vhost exchange read write: text",
    "Policy": "name vhost pattern apply-to: text; priority: i16; definition: object",
    "Parameter": "name vhost component: text; value: object",
    "GlobalParameter": "name: text; value: any",
    "FeatureFlag": "name state desc doc_url stability provided_by: text",
    "Deprecated": "name desc deprecation_phase doc_url provided_by: text; state?: text",
    "Attempts": "protocol: text; auth_attempts auth_attempts_failed auth_attempts_succeeded: u64",
    "Shovel": "node name type state: text; vhost? src_uri? dest_uri? src_queue? dest_queue? src_address? "
    "dest_address? src_protocol? dest_protocol?: text",
    "Link": "node vhost id uri status type upstream: text; consumer_tag?: text",
    "Definitions": "rabbitmq_version?: text; users: [User]; vhosts: [VirtualHost]; permissions: "
    "[Permissions]; parameters: [Parameter]; policies: [Policy]; queues: [QueueDefinition]; exchanges: "
    "[Exchange]; bindings: [Binding]",
    "QueueDefinition": "name vhost: text; durable auto_delete: flag; arguments: object",
    "Message": "payload_bytes message_count: u32; redelivered: flag; exchange routing_key payload "
    "payload_encoding: text; properties: object",
    "Alive": "status: text",
}

RABBITMQADMIN_PATHS = {
    "overview": "Overview",
    "nodes": "[Node]",
    "nodes/NODE": "Node",
    "nodes/NODE/memory": "Footprint",
    "queues": "[Queue]",
    "queues/detailed": "[Queue]",
    "queues/%2F": "[Queue]",
    "queues/%2F?page=1&page_size=2": "Page",
    "queues/%2F/classic": "Queue",
    "queues/%2F/quorum": "Queue",
    "queues/%2F/stream": "Queue",
    "exchanges": "[Exchange]",
    "exchanges/%2F/events": "Exchange",
    "bindings": "[Binding]",
    "queues/%2F/classic/bindings": "[Binding]",
    "exchanges/%2F/events/bindings/source": "[Binding]",
    "connections": "[Connection]",
    "connections/username/guest": "[UserConnection]",
    "channels": "[Channel]",
    "consumers": "[Consumer]",
    "consumers/%2F": "[Consumer]",
    "users": "[User]",
    "users/without-permissions": "[User]",
    "user-limits": "[Limits]",
    "vhost-limits": "[Limits]",
    "vhosts": "[VirtualHost]",
    "permissions": "[Permissions]",
    "topic-permissions": "[TopicPermissions]",
    "policies": "[Policy]",
    "operator-policies": "[Policy]",
    "parameters": "[Parameter]",
    "global-parameters": "[GlobalParameter]",
    "feature-flags": "[FeatureFlag]",
    "deprecated-features": "[Deprecated]",
    "deprecated-features/used": "[Deprecated]",
    "auth/attempts/NODE": "[Attempts]",
    "shovels": "[Shovel]",
    "federation-links": "[Link]",
    "definitions": "Definitions",
    "whoami": "CurrentUser",
    "stream/connections": "[Connection]",
    "stream/publishers": "[object]",
    "stream/consumers/%2F": "[object]",
    "health/checks/alarms": "Alive",
    "health/checks/node-is-quorum-critical": "Alive",
}

EASYNETQ = {
    "Rates": "rate avg_rate~ avg~: number; samples?: [object]",
    "Stats": "ack~ deliver_get~ deliver_no_ack~ publish~ publish_in~ publish_out~ redeliver~ return~ get~ "
    "get_no_ack~ deliver~ confirm~: i64; ack_details? deliver_get_details? deliver_no_ack_details? "
    "publish_details? publish_in_details? publish_out_details? redeliver_details? return_details? "
    "get_details? get_no_ack_details? deliver_details? confirm_details?: Rates",
    "Totals": "messages messages_ready messages_unacknowledged: i64; messages_details "
    "messages_ready_details messages_unacknowledged_details: Rates",
    "Objects": "consumers queues exchanges connections channels: i32",
    "Kind": "name description: text; enabled: flag",
    "Listener": "node protocol ip_address: text; port: i32",
    "Context": "node description path: text; port: any",
    "Overview": "management_version rabbitmq_version erlang_version node: text; exchange_types: [Kind]; "
    "message_stats: Stats; queue_totals: Totals; object_totals: Objects; listeners: [Listener]; contexts: "
    "[Context]",
    "Application": "name description version: text",
    "Node": "name type os_pid: text; running mem_alarm disk_free_alarm: flag; fd_used fd_total "
    "sockets_used sockets_total mem_used mem_limit disk_free_limit disk_free proc_used proc_total uptime "
    "run_queue processors: i64; exchange_types auth_mechanisms: [Kind]; applications: [Application]; "
    "partitions: [text]",
    "ChannelDetail": "name~ user~ connection_name~ peer_host~ node~: text; number~ peer_port~: any",
    "QueueName": "name vhost: text",
    "ConsumerDetail": "queue: QueueName; consumer_tag: text; exclusive ack_required: flag; arguments: "
    "object; channel_details: ChannelDetail",
    "Queue": "name vhost type node state: text; arguments: object; durable exclusive auto_delete: flag; "
    "messages_ready messages_unacknowledged messages memory message_bytes consumers: i64; "
    "active_consumers~: i64; idle_since: text; policy? exclusive_consumer_tag?: text; consumer_details?: "
    "[ConsumerDetail]; head_message_timestamp?: i64; slave_nodes? synchronised_slave_nodes?: [text]; "
    "messages_details messages_ready_details messages_unacknowledged_details: Rates; message_stats: Stats",
    "Exchange": "name vhost type user_who_performed_action: text; durable auto_delete internal: flag; "
    "arguments: object; message_stats: Stats",
    "Binding": "source vhost destination destination_type routing_key properties_key: text; arguments: "
    "object",
    "Peer": "name peer_host: text; peer_port: i32",
    "Channel": "connection_details: Peer; message_stats: Stats; idle_since node name user vhost: text; "
    "transactional confirm: flag; consumer_count messages_unacknowledged messages_unconfirmed "
    "messages_uncommitted acks_uncommitted prefetch_count number: i32; client_flow_blocked~: flag; "
    "consumer_details~: [ConsumerDetail]",
    "Connection": "recv_oct recv_cnt send_oct send_cnt send_pend channels timeout frame_max: i64; state "
    "type node name peer_host protocol user vhost auth_mechanism: text; port peer_port: i32; ssl: flag; "
    "address? last_blocked_by? last_blocked_age? peer_cert_subject? peer_cert_issuer? peer_cert_validity? "
    "ssl_protocol? ssl_key_exchange? ssl_cipher? ssl_hash?: text; client_properties: object",
    "Consumer": "arguments: object; ack_required active exclusive: flag; activity_status consumer_tag: "
    "text; channel_details: ChannelDetail; prefetch_count: i32; queue: QueueName",
    "Page": "filtered_count item_count page page_count page_size total_count: i32; items: [Queue]",
    "User": "name password_hash: text; tags: [text]; hashing_algorithm~: text; limits~: object",
    "Limits": "user: text; value: object",
    "Vhost": "name: text; tracing: flag",
    "Permission": "user vhost configure write read: text",
    "TopicPermission": "user vhost exchange write read: text",
    "Policy": "name pattern vhost apply-to: text; definition: object; priority: i32",
    "Parameter": "vhost component name: text; value: object",
    "GlobalParameter": "name: text; value: any",
    "Shovel": "name vhost node timestamp type state: text; src_protocol? src_uri? src_queue? "
    "src_exchange? src_exchange_key? dest_protocol? dest_uri? dest_queue? dest_exchange? "
    "dest_exchange_key? blocked_status? reason?: text",
    "Definitions": "rabbit_version rabbitmq_version product_name product_version: text; users: [User]; "
    "vhosts permissions topic_permissions parameters global_parameters policies queues exchanges "
    "bindings: [object]",
    "Alive": "status: text",
}

EASYNETQ_PATHS = {
    "overview?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5": "Overview",
    "nodes": "[Node]",
    "definitions": "Definitions",
    "connections": "[Connection]",
    "channels": "[Channel]",
    "consumers": "[Consumer]",
    "exchanges": "[Exchange]",
    "queues": "[Queue]",
    "queues?page=1&page_size=100": "Page",
    "queues/%2F/classic?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5": "Queue",
    "queues/%2F/quorum": "Queue",
    "queues/%2F/stream": "Queue",
    "bindings": "[Binding]",
    "vhosts": "[Vhost]",
    "users": "[User]",
    "user-limits": "[Limits]",
    "permissions": "[Permission]",
    "topic-permissions": "[TopicPermission]",
    "policies": "[Policy]",
    "parameters": "[Parameter]",
    "global-parameters": "[GlobalParameter]",
    "shovels": "[Shovel]",
    "aliveness-test/%2F": "Alive",
    "health/checks/alarms": "Alive",
}

NSERVICEBUS = {
    "Overview": "rabbitmq_version: text; disable_stats: flag",
    "FeatureFlag": "name: text; state: text",
    "Arguments": "x-delivery-limit~: i32",
    "Definition": "delivery-limit~: i32",
    "Stats": "ack?: i64",
    "Queue": "name type: text; arguments: Arguments; delivery_limit~: i32; effective_policy_definition: "
    "Definition; policy?: text; messages: i64; message_stats: Stats",
    "Page": "items: [Queue]; page page_count: i32",
    "Binding": "source destination destination_type routing_key properties_key: text",
}

NSERVICEBUS_PATHS = {
    "overview": "Overview",
    "feature-flags": "[FeatureFlag]",
    "queues/%2F/classic": "Queue",
    "queues/%2F/quorum": "Queue",
    "queues/%2F/?page=1&page_size=500": "Page",
    "queues/%2F/classic/bindings": "[Binding]",
    "exchanges/%2F/events/bindings/destination": "[Binding]",
}

NAGIOS = {
    "Alive": "status: text",
    "Node": "name type: text; running: flag; mem_used mem_limit proc_used proc_total fd_used fd_total "
    "sockets_used sockets_total: u64; partitions: [text]; mem_alarm disk_free_alarm: flag",
    "Connection": "user state: text; recv_oct_details/rate send_oct_details/rate: number",
    "Exchange": "message_stats/publish_in_details/avg_rate message_stats/publish_out_details/avg_rate: "
    "number",
    "Overview": "queue_totals/messages queue_totals/messages_ready queue_totals/messages_unacknowledged: u64",
    "Queue": "name: text; messages messages_ready messages_unacknowledged consumers: u64",
    "Shovel": "name state: text",
}

NAGIOS_PATHS = {
    "aliveness-test/%2F": "Alive",
    "nodes": "[Node]",
    "nodes/NODE": "Node",
    "connections": "[Connection]",
    "exchanges/%2F/events?msg_rates_age=60&msg_rates_incr=60": "Exchange",
    "vhosts": "[object]",
    "exchanges": "[object]",
    "bindings": "[object]",
    "channels": "[object]",
    "overview": "Overview",
    "queues/%2F": "[Queue]",
    "queues/%2F/quorum": "Queue",
    "shovels": "[Shovel]",
}

TELEGRAF = {
    "Rate": "rate: number",
    "Broker": "ack deliver deliver_get publish redeliver return_unroutable: i64; publish_in~ "
    "publish_out~: i64; return_unroutable_details: Rate",
    "Objects": "channels connections consumers exchanges queues: i64",
    "Totals": "messages messages_ready messages_unacknowledged: i64",
    "Listener": "protocol: text",
    "Overview": "message_stats: Broker; object_totals: Objects; queue_totals: Totals; listeners: [Listener]",
    "Stats": "ack deliver deliver_get publish redeliver: i64; ack_details deliver_details "
    "deliver_get_details publish_details redeliver_details: Rate",
    "Queue": "message_stats: Stats; messages messages_ready messages_unacknowledged message_bytes "
    "message_bytes_ready message_bytes_unacknowledged message_bytes_ram message_bytes_persistent memory "
    "consumers: i64; consumer_utilisation: number; name node vhost idle_since: text; durable auto_delete: "
    "flag; slave_nodes? synchronised_slave_nodes?: [text]",
    "Node": "name: text; disk_free disk_free_limit fd_total fd_used mem_limit mem_used proc_total "
    "proc_used run_queue sockets_total sockets_used uptime mnesia_disk_tx_count mnesia_ram_tx_count "
    "gc_num gc_bytes_reclaimed io_read_bytes io_write_bytes: i64; io_read_avg_time io_write_avg_time: "
    "number; disk_free_alarm mem_alarm running: flag; mnesia_disk_tx_count_details "
    "mnesia_ram_tx_count_details gc_num_details gc_bytes_reclaimed_details io_read_avg_time_details "
    "io_read_bytes_details io_write_avg_time_details io_write_bytes_details: Rate",
    "Memory": "connection_readers connection_writers connection_channels connection_other queue_procs "
    "queue_slave_procs plugins other_proc metrics mgmt_db mnesia other_ets binary msg_index code atom "
    "other_system allocated_unused reserved_unallocated: i64; total/rss: i64",
    "Footprint": "memory: Memory",
    "Routed": "publish_in publish_out: i64; publish_in_details publish_out_details: Rate",
    "Exchange": "name type vhost: text; internal durable auto_delete: flag; message_stats: Routed",
    "Counts": "confirm publish return_unroutable: i64",
    "LocalChannel": "acks_uncommitted consumer_count messages_unacknowledged messages_uncommitted "
    "messages_unconfirmed: i64; message_stats: Counts",
    "Link": "type vhost upstream: text; queue~ upstream_queue~ exchange~ upstream_exchange~: text; "
    "local_channel~: LocalChannel",
}

TELEGRAF_PATHS = {
    "overview": "Overview",
    "nodes": "[Node]",
    "nodes/NODE/memory": "Footprint",
    "queues": "[Queue]",
    "exchanges": "[Exchange]",
    "federation-links": "[Link]",
}

DATADOG = {
    "Rate": "rate: number",
    "Overview": "rabbitmq_version cluster_name: text; object_totals/connections object_totals/channels "
    "object_totals/queues object_totals/consumers queue_totals/messages queue_totals/messages_ready "
    "queue_totals/messages_unacknowledged message_stats/ack message_stats/confirm "
    "message_stats/deliver_get message_stats/publish message_stats/drop_unroutable "
    "message_stats/return_unroutable message_stats/redeliver: number; queue_totals/messages_details "
    "queue_totals/messages_ready_details queue_totals/messages_unacknowledged_details "
    "message_stats/ack_details message_stats/confirm_details message_stats/deliver_get_details "
    "message_stats/publish_details message_stats/drop_unroutable_details "
    "message_stats/return_unroutable_details message_stats/redeliver_details: Rate",
    "Exchange": "name vhost: text; message_stats/publish_in message_stats/publish_out: number; "
    "message_stats/publish_in_details message_stats/publish_out_details: Rate",
    "Queue": "name vhost node: text; policy?: text; consumers consumer_utilisation memory messages "
    "messages_ready message_bytes messages_unacknowledged message_stats/ack message_stats/deliver "
    "message_stats/deliver_get message_stats/publish message_stats/redeliver: number; "
    "head_message_timestamp?: i64; messages_details messages_ready_details "
    "messages_unacknowledged_details message_stats/ack_details message_stats/deliver_details "
    "message_stats/deliver_get_details message_stats/publish_details message_stats/redeliver_details: "
    "Rate",
    "Node": "name: text; fd_used disk_free mem_used mem_limit run_queue sockets_used: number; partitions: "
    "[text]; running mem_alarm disk_free_alarm: flag",
    "Connection": "vhost state: text",
    "Vhost": "name: text",
    "Alive": "status: text",
}
"""Datadog's counts of an exchange that RabbitMQ does not have (`ack`, `confirm`, ...) are left out."""

DATADOG_PATHS = {
    "overview": "Overview",
    "exchanges": "[Exchange]",
    "queues": "[Queue]",
    "nodes": "[Node]",
    "connections": "[Connection]",
    "vhosts": "[Vhost]",
    "vhosts/%2F/connections": "[Connection]",
    "aliveness-test/%2F": "Alive",
}

TOOLS: dict[str, tuple[Table, dict[str, str]]] = {
    "rabbitmqadmin": (RABBITMQADMIN, RABBITMQADMIN_PATHS),
    "EasyNetQ": (EASYNETQ, EASYNETQ_PATHS),
    "NServiceBus": (NSERVICEBUS, NSERVICEBUS_PATHS),
    "nagios-plugins-rabbitmq": (NAGIOS, NAGIOS_PATHS),
    "Telegraf": (TELEGRAF, TELEGRAF_PATHS),
    "Datadog": (DATADOG, DATADOG_PATHS),
}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The HTTP API of a broker that has objects of all kinds, and clients that use them."""
    with running_estate(tmp_path_factory.mktemp("used")) as daemon:
        api = Api(daemon.admin)
        yield api
        api.close()


def ask(api: Api, path: str) -> Any:
    """Return the answer to a GET request for an encoded path."""
    node = api.get("overview")["node"]
    answer = api.client.get(f"{api.base}/api/{path.replace('NODE', node)}")
    assert answer.status_code == 200, f"{path}: {answer.text}"
    return answer.json()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_finds_its_fields(used: Api, tool: str) -> None:
    table, paths = TOOLS[tool]
    misfits = [
        f"{path}{misfit}"
        for path, kind in paths.items()
        for misfit in find_misfits(table, kind, ask(used, path))
    ]
    assert misfits == []


def test_the_estate_has_no_empty_list(used: Api) -> None:
    empty = {"deprecated-features", "deprecated-features/used", "users/without-permissions"}
    paths = {path for _, all_paths in TOOLS.values() for path, kind in all_paths.items() if kind[0] == "["}
    empty |= {path for path in paths if path.startswith("stream/")}
    assert [path for path in sorted(paths - empty) if not ask(used, path)] == []


def test_channels_of_consumers_are_whole_or_empty(used: Api) -> None:
    """rabbitmqadmin v2 reads an object with all fields, or one without any, for `channel_details`."""
    shown = {each["queue"]["name"]: each["channel_details"] for each in used.get("consumers")}
    assert shown["called"] == {}
    assert find_misfits(RABBITMQADMIN, "ChannelDetails", shown["stream"]) == []
    timeouts = {each["queue"]["name"]: each["consumer_timeout"] for each in used.get("consumers")}
    assert (timeouts["classic"], timeouts["stream"]) == (60_000, 0)


def test_the_version_of_rabbitmq_in_the_applications(used: Api) -> None:
    """rabbitmqadmin v2 reads the node's version from `rabbitmq_version`, or from the application `rabbit`."""
    (node,) = used.get("nodes")
    versions = {each["name"]: each["version"] for each in node["applications"]}
    assert versions["rabbit"] == node["rabbitmq_version"] == used.get("overview")["rabbitmq_version"]


def test_the_types_of_exchanges_that_pages_offer(used: Api) -> None:
    """RabbitMQ's page offers the types without the field `internal_purpose`."""
    kinds = {each["name"]: each for each in used.get("overview")["exchange_types"]}
    offered = {name for name, kind in kinds.items() if "internal_purpose" not in kind}
    assert {"direct", "fanout", "topic", "headers"} <= offered
    assert kinds["x-federation-upstream"]["internal_purpose"] == "federation"


@pytest.mark.parametrize(
    "path", ["overview", "nodes", "nodes/NODE", "vhosts/%2F", "queues/%2F/classic", "exchanges/%2F/events"]
)
def test_fields_are_chosen(used: Api, path: str) -> None:
    """rabbitmqadmin 3.10 and Telegraf's users choose `columns` of single objects too."""
    whole = ask(used, path)
    shown = ask(used, f"{path}?columns=name,object_totals.queues,message_stats.publish")
    if path == "nodes":
        (whole,), (shown,) = whole, shown
    assert set(shown) == {"name", "object_totals", "message_stats"} & set(whole)
    assert set(shown.get("object_totals", {})) <= {"queues"}
    assert set(shown.get("message_stats", {})) <= {"publish"}


def test_fields_of_connections_and_channels_are_chosen(used: Api) -> None:
    for kind in ("connections", "channels"):
        name = used.get(kind)[0]["name"]
        assert set(used.get(kind, name, columns="name,user")) == {"name", "user"}


def test_a_table_finds_what_is_wrong() -> None:
    table = {"A": "name: text; n~: u16; b?: B; c/d: number", "B": "list: [flag]; map: {i32}"}
    whole = {"name": "x", "n": 0, "b": {"list": [True], "map": {"k": -1}}, "c": {"d": 0.5}}
    assert find_misfits(table, "[A]", [whole, {"name": "", "b": None, "c": {"d": 1}}]) == []
    wrong = {"n": None, "b": {"list": [1], "map": {"k": 2**31}}, "c": {}}
    assert find_misfits(table, "A", wrong) == [
        ".name is missing",
        ".n: None is no u16",
        ".b.list[0]: 1 is no flag",
        ".b.map.k: 2147483648 is no i32",
        ".c/d is missing",
    ]
    assert find_misfits(table, "A", []) == [": [] is no A"]
