"""Definitions: import, export, and files that RabbitMQ has written."""

import contextlib
import gc
import json
from typing import Any

import pytest

from broker.admin.definitions.exporter import ForRabbitMQ, export_pieces
from broker.admin.definitions.importer import DefinitionsError, find_clear_passwords, import_steps
from broker.auth.passwords import make_password
from broker.core.policies.policy import Policy
from broker.core.queues.queue import Queue
from broker.core.routing.bindings import SLICE
from tests.support.admin.definitions import DefinitionsBench, definitions_of_rabbitmq
from tests.support.core.topology import routed


def test_import_adds_only_missing_queues() -> None:
    place = DefinitionsBench()
    place.take({"queues": [{"name": "q", "vhost": "/", "durable": True}]})
    changes = len(place.store.changes)
    place.take({"queues": [{"name": name, "vhost": "/", "durable": True} for name in "pq"]})
    assert [change["name"] for change in place.store.changes[changes:]] == ["p"]


def test_queues_are_durable_and_may_have_their_type_beside_their_arguments() -> None:
    place = DefinitionsBench()
    place.take({"queues": [{"name": "q", "vhost": "/", "type": "quorum"}]})
    queue = place.broker.vhosts["/"].topology.queues["q"]
    assert (queue.durable, queue.arguments) == (True, {"x-queue-type": "quorum"})


def test_passwords_in_the_clear_are_hashed_beforehand() -> None:
    document = {"users": [{"name": "u", "password": "secret"}, {"name": "v", "password_hash": ""}, 5]}
    assert find_clear_passwords(document) == {"u": "secret"}
    assert find_clear_passwords([]) == {}
    del document["users"][2]
    place = DefinitionsBench()
    password = make_password("secret", 0)
    place.take(document, passwords={"u": password})
    assert place.users.require_user("u").password == password


def bad(category: str, **entry: object) -> dict[str, Any]:
    """Return definitions with a single invalid object after some valid ones."""
    return {
        "vhosts": [{"name": "v"}],
        "queues": [{"name": "good", "vhost": "v"}] if category != "queues" else [],
        category: [entry],
    } | ({"vhosts": [{"name": "v"}, entry]} if category == "vhosts" else {})


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "definitions are a JSON object"),
        ({"shoes": []}, "'shoes' is not known, allowed: users, vhosts"),
        ({"queues": {}}, "'queues' is not a list of objects"),
        ({"queues": [1]}, "'queues' is not a list of objects"),
        (bad("vhosts", name=""), "vhost '': a vhost needs a name"),
        (bad("vhosts"), "vhost 'None': 'name' is missing"),
        (
            bad("vhosts", name="w", metadata={"default_queue_type": "x"}),
            "default_queue_type 'x' of vhost 'w'",
        ),
        (bad("users", name="u", password_hash="!"), "user 'u': a password hash is not base 64"),
        (bad("users", name="u", password_hash="x", hashing_algorithm="md5"), "hashing_algorithm 'md5'"),
        (bad("users", name="u", password_hash="", tags=5), "user 'u': 'tags' is not a list of strings: 5"),
        (bad("users", name="u", password_hash="", limits={"x": 1}), "user 'u': limit 'x' is not known"),
        (bad("permissions", user="u", vhost="v", configure="", write="", read=""), "no user 'u'"),
        (bad("topic_permissions", user="u", vhost="v", exchange="", write="", read=""), "no user 'u'"),
        (bad("queues", name="q", vhost="w"), "queue 'q' in vhost 'w': there is no vhost 'w'"),
        (
            bad("queues", name="q", vhost="v", arguments={"x-expires": 0}),
            "invalid arg 'x-expires' for queue 'q'",
        ),
        (bad("queues", name="q", vhost="v", arguments=5), "the arguments of queue 'q' are not an object"),
        (bad("queues", name="q", vhost="v", durable="yes"), "'durable' is not a boolean: \"yes\""),
        (bad("queues", name="", vhost="v"), "a queue needs a name"),
        (
            bad("queues", name="q", vhost="v", argumnets={}),
            "queue 'q' in vhost 'v': 'argumnets' is not known, allowed: arguments, auto_delete, ",
        ),
        (bad("users", name="u", pasword="p"), "user 'u': 'pasword' is not known"),
        (bad("vhosts", name="w", metadata={"shoes": 1}), "vhost 'w': 'shoes' in 'metadata' is not known"),
        (
            bad("queues", name="q", vhost="v", type="heap"),
            "queue 'q' in vhost 'v': invalid arg 'x-queue-type'",
        ),
        (bad("queues", name="q", vhost="v") | {"metadata": {}}, "'metadata' is not known, allowed: users, "),
        (
            bad("exchanges", name="x", vhost="v", type="shoe"),
            "exchange 'x' in vhost 'v': unknown exchange type",
        ),
        (bad("exchanges", name="x", vhost="v"), "exchange 'x' in vhost 'v': 'type' is missing"),
        (
            bad("bindings", source="x", vhost="v", destination="good", destination_type="queue"),
            "binding from 'x' to 'good' in vhost 'v': no exchange 'x' in vhost 'v'",
        ),
        (
            bad("bindings", source="amq.topic", vhost="v", destination="q", destination_type="queue"),
            "no queue 'q' in vhost 'v'",
        ),
        (
            bad("bindings", source="amq.topic", vhost="v", destination="good", destination_type="shoe"),
            "'destination_type' is 'shoe', allowed: queue, exchange",
        ),
        (
            bad("policies", name="p", vhost="v", pattern="(", definition={"expires": 1}),
            "policy 'p' in vhost 'v': the pattern '('",
        ),
        (bad("policies", name="p", vhost="v", pattern=""), "'definition' is missing"),
        (
            bad("parameters", name="s", vhost="v", component="federation", value={}),
            "parameter 's' in vhost 'v': component 'federation' is not known, allowed: operator_policy, ",
        ),
        (
            bad("parameters", name="s", vhost="v", component="shovel", value={}),
            "parameter 's' in vhost 'v': 'src-uri' is missing",
        ),
        (
            bad("parameters", name="l", vhost="v", component="vhost-limits", value=5),
            "'value' is not an object",
        ),
        (
            bad("parameters", name="l", vhost="v", component="vhost-limits", value={"shoes": 1}),
            "limit 'shoes' is not known",
        ),
        (bad("global_parameters", name="g"), "global parameter 'g': 'value' is missing"),
    ],
)
def test_an_invalid_item_is_named_and_nothing_changes(document: object, problem: str) -> None:
    (expected,) = DefinitionsBench().problems(document)
    assert problem in expected


def test_up_to_twenty_problems_are_reported() -> None:
    place = DefinitionsBench()
    problems = place.problems({"queues": [{"name": f"q{number}", "vhost": "w"} for number in range(3)]})
    assert [line.split(":")[0] for line in problems] == [
        f"queue 'q{number}' in vhost 'w'" for number in range(3)
    ]
    problems = place.problems({"queues": [{"name": "q", "vhost": "w"}] * 30})
    assert (len(problems), problems[-1]) == (21, "further problems are not shown")


def test_a_different_existing_object_is_refused_as_in_a_declaration() -> None:
    place = DefinitionsBench()
    vhost = place.broker.vhosts["/"]
    vhost.declarations.declare_queue("q", False, None, False, {})
    vhost.declarations.declare_queue("mine", False, object(), False, {})
    vhost.declarations.declare_exchange("x", "fanout", False, False, False, {})
    queue = {"name": "q", "vhost": "/", "durable": True}
    assert "inequivalent arg 'durable'" in place.problems({"queues": [queue]})[0]
    assert "exclusive access" in place.problems({"queues": [queue | {"name": "mine"}]})[0]
    exchange = {"name": "x", "vhost": "/", "type": "topic", "durable": False}
    assert "inequivalent arg 'type'" in place.problems({"exchanges": [exchange]})[0]


def test_a_file_for_one_virtual_host_has_no_users() -> None:
    place = DefinitionsBench()
    (problem,) = place.problems({"users": [{"name": "u", "password_hash": ""}]}, "/")
    assert problem == (
        "'users' cannot be imported into one vhost, "
        "allowed: parameters, policies, exchanges, queues, bindings, dispatchers"
    )


def test_import_counts_existing_and_imported_queues_toward_the_limit() -> None:
    place = DefinitionsBench()
    vhost = place.broker.vhosts["/"]
    for number in range(3):
        vhost.declarations.declare_queue(f"old{number}", False, None, False, {})
    place.broker.limit_vhost("/", None, 4)
    new = [{"name": name, "vhost": "/"} for name in ("a", "b")]
    assert "2 more queues would exceed the limit of 4, there are 3" in place.problems({"queues": new})[0]
    place.take({"queues": new[:1]})
    raised = {"name": "limits", "vhost": "/", "component": "vhost-limits", "value": {"max-queues": 9}}
    place.take({"queues": new, "parameters": [raised]})
    assert len(vhost.topology.queues) == 5


def test_shovels_are_imported_and_exported_as_rabbitmq_writes_them() -> None:
    place = DefinitionsBench()
    value = {
        "ack-mode": "on-confirm",
        "dest-add-forward-headers": False,
        "dest-protocol": "amqp091",
        "dest-queue": "b",
        "dest-uri": "amqp://u:p@host",
        "src-delete-after": "never",
        "src-protocol": "amqp091",
        "src-queue": "a",
        "src-uri": "amqp:///%2F",
    }
    parameter = {"vhost": "/", "component": "shovel", "name": "s", "value": value}
    place.take({"parameters": [parameter]})
    changes = len(place.store.changes)
    place.take({"parameters": [parameter]})
    assert len(place.store.changes) == changes, "the same definition is no change"
    exported = json.loads("".join(export_pieces(place.broker, place.users, place.dispatchers, "1.0")))
    assert exported["parameters"] == [parameter]


def test_federation_is_imported_and_exported_as_rabbitmq_writes_it() -> None:
    place = DefinitionsBench()
    upstream = {"uri": ["amqp://u:p@east", "amqp://west"], "expires": 3600000, "ack-mode": "on-confirm"}
    elements: list[dict[str, object]] = [{"upstream": "origin", "exchange": "news"}, {"upstream": "other"}]
    parameters = [
        {"vhost": "/", "component": "federation-upstream", "name": "origin", "value": upstream},
        {"vhost": "/", "component": "federation-upstream-set", "name": "s", "value": elements},
    ]
    policy = {
        "vhost": "/",
        "name": "federate-me",
        "pattern": "^amq\\.",
        "apply-to": "exchanges",
        "definition": {"federation-upstream-set": "all"},
        "priority": 0,
    }
    place.take({"parameters": parameters, "policies": [policy]})
    changes = len(place.store.changes)
    place.take({"parameters": parameters, "policies": [policy]})
    assert len(place.store.changes) == changes, "the same definitions are no change"
    exported = json.loads("".join(export_pieces(place.broker, place.users, place.dispatchers, "1.0")))
    assert exported["parameters"] == parameters
    assert exported["policies"] == [policy]
    elements[0]["upstream"] = 1
    assert "'upstream' is '1', allowed: a string" in place.problems({"parameters": parameters})[0]


def test_with_a_log_that_has_stopped_nothing_is_imported() -> None:
    place = DefinitionsBench()
    place.store.failure = "disk full"
    with pytest.raises(DefinitionsError, match="the log has stopped: disk full"):
        place.take({"queues": [{"name": "q", "vhost": "/"}]})
    assert place.broker.vhosts["/"].topology.queues == {}


def test_an_import_is_made_in_steps_that_are_short() -> None:
    place = DefinitionsBench()
    many = [{"name": f"q{number}", "vhost": "/"} for number in range(100)]
    steps = import_steps({"queues": many}, place.broker, place.users, place.dispatchers, {})
    before = 0
    while not place.store.changes[1:]:
        next(steps)
        before += 1
    assert before > 400, "each is looked at, copied, tried and counted in a step of its own"
    assert len(list(steps)) == 99


def test_a_single_vhost_file_sets_metadata_and_default_queue_type() -> None:
    place = DefinitionsBench()
    place.broker.describe_vhost("/", "before", ("t",), None)
    document = {
        "rabbitmq_definition_format": "single_virtual_host",
        "original_vhost_name": "shop",
        "metadata": {"description": "the shop", "default_queue_type": "quorum"},
        "limits": {"max-queues": 7},
        "queues": [{"name": "q", "durable": True, "vhost": "/"}],
    }
    place.take(document, "/")
    vhost = place.broker.vhosts["/"]
    assert (vhost.description, vhost.tags, vhost.default_queue_type) == ("the shop", ("t",), "quorum")
    assert vhost.queues_max == 7
    assert vhost.topology.queues["q"].arguments == {"x-queue-type": "quorum"}
    elsewhere = {"queues": [{"name": "p", "vhost": "shop"}]}
    assert "it is of vhost 'shop', but the file is for '/'" in place.problems(elsewhere, "/")[0]
    assert place.problems({"default_queue_type": "x"}, "/")[0].startswith("vhost '/': default_queue_type 'x'")


def test_the_type_of_a_queue_is_its_own_before_that_of_its_virtual_host() -> None:
    place = DefinitionsBench()
    place.broker.describe_vhost("/", "", (), "quorum")
    vhost = place.broker.vhosts["/"]
    vhost.declarations.declare_queue("there", True, None, False, {})
    typed = [{"name": "c", "type": "classic"}, {"name": "q", "type": "quorum"}, {"name": "q2"}]
    place.take({"queues": [{"name": "there"}, *typed]}, "/")
    kinds = {name: queue.arguments["x-queue-type"] for name, queue in vhost.topology.queues.items()}
    assert kinds == {"there": "quorum", "c": "classic", "q": "quorum", "q2": "quorum"}


@pytest.mark.parametrize("wrong", [False, True])
def test_the_copy_leaves_no_work_for_the_garbage_collector(wrong: bool) -> None:
    place = DefinitionsBench()
    queues = [{"name": f"tried{number}", "vhost": "/"} for number in range(50)]
    bindings = [
        {
            "source": "amq.topic",
            "vhost": "/",
            "destination": "tried7",
            "destination_type": "queue",
            "routing_key": str(number),
        }
        for number in range(int(SLICE) * 2)
    ]
    if wrong:
        queues.append({"name": "tried", "vhost": "nowhere"})
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(DefinitionsError):
            place.take({"queues": queues, "bindings": bindings})
        made = len(place.broker.vhosts["/"].topology.queues)
        assert (made, tried_queues()) == ((0, 0) if wrong else (50, 50))
    finally:
        gc.enable()


def tried_queues() -> int:
    """Return the number of such queues in memory."""
    return sum(isinstance(found, Queue) and found.name.startswith("tried") for found in gc.get_objects())


def test_an_export_imported_elsewhere_is_exported_the_same() -> None:
    place, other = DefinitionsBench(), DefinitionsBench()
    place.take(definitions_of_rabbitmq())
    place.users.add("own", make_password("secret", 5000), ("monitoring",), loopback_only=True)
    document = place.document()
    other.take(document)
    assert other.document() == document
    assert other.users.require_user("own").password == place.users.require_user("own").password
    assert other.users.require_user("own").loopback_only
    assert set(document) >= {"users", "vhosts", "permissions", "parameters", "policies", "queues", "bindings"}


def test_a_queue_keeps_its_type_where_queues_are_of_another_one() -> None:
    place, other = DefinitionsBench(), DefinitionsBench()
    place.broker.vhosts["/"].declarations.declare_queue("old", True, None, False, {})
    place.broker.describe_vhost("/", "", (), "quorum")
    other.take(place.document())
    (queue,) = other.broker.vhosts["/"].topology.queues.values()
    assert queue.arguments == {"x-queue-type": "classic"}


def test_a_single_virtual_host_is_exported_without_its_name_and_imported_elsewhere() -> None:
    place = DefinitionsBench()
    place.take(definitions_of_rabbitmq())
    document = place.document("shop")
    assert "users" not in document
    assert '"vhost":' not in json.dumps(document)
    place.broker.declare_vhost("copy")
    place.take(document, "copy")
    assert place.document("copy") == document


def test_the_properties_of_a_virtual_host_are_exported() -> None:
    place = DefinitionsBench()
    place.broker.describe_vhost("/", "the shop", ("t",), "quorum")
    place.broker.declare_vhost("copy")
    place.take(place.document("/"), "copy")
    copy = place.broker.vhosts["copy"]
    assert (copy.description, copy.tags, copy.default_queue_type) == ("the shop", ("t",), "quorum")


def test_exclusive_and_generated_names_are_not_exported() -> None:
    place = DefinitionsBench()
    vhost = place.broker.vhosts["/"]
    vhost.declarations.declare_queue("mine", False, object(), False, {})
    vhost.declarations.bind_queue("mine", "amq.fanout", "", {}, vhost.topology.queues["mine"].exclusive_owner)
    generated = vhost.declarations.declare_queue("", True, None, False, {})
    vhost.declarations.bind_queue(generated.name, "amq.fanout", "", {})
    document = place.document()
    assert (document["queues"], document["bindings"], document["exchanges"]) == ([], [], [])


def test_changes_during_an_export_do_not_break_the_export() -> None:
    place = DefinitionsBench()
    place.take(definitions_of_rabbitmq())
    vhost = place.broker.vhosts["shop"]
    pieces: list[str] = []
    for number, piece in enumerate(export_pieces(place.broker, place.users, place.dispatchers, "1")):
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
    other = DefinitionsBench()
    other.take(document)
    assert set(other.broker.vhosts) == {"/", "shop"}


def test_an_export_of_rabbitmq_3_is_imported() -> None:
    place = DefinitionsBench()
    place.take(definitions_of_rabbitmq())
    vhost = place.broker.vhosts["shop"]
    assert (vhost.description, vhost.tags, vhost.queues_max) == ("the shop", ("prod",), 100)
    assert set(vhost.topology.queues) == {"orders", "audit", "live"}
    assert vhost.topology.queues["orders"].effective == {"x-message-ttl": 60000, "x-max-length": 500000}
    assert vhost.topology.queues["live"].auto_delete
    assert routed(vhost, "shop.events", "order.new") == ["orders"]
    assert vhost.topology.exchanges["shop.lost"].internal
    shop = place.users.require_user("shop")
    assert (shop.tags, shop.limits) == (("management", "policymaker"), {"max-connections": 100})
    assert shop.permissions["shop"].configure == r"^shop\."
    assert shop.topics["shop", "amq.topic"].write == r"^{username}\."
    assert place.users.require_user("watcher").tags == ("monitoring",)
    assert place.users.require_user("guest").loopback_only
    assert place.broker.parameters.get("cluster_name") == "rabbit@shop"


def test_importing_twice_changes_nothing() -> None:
    place = DefinitionsBench()
    place.take(definitions_of_rabbitmq())
    changes = list(place.store.changes)
    place.take(definitions_of_rabbitmq())
    place.take(place.document())
    assert place.store.changes == changes


def test_an_export_of_rabbitmq_4_is_imported() -> None:
    place = DefinitionsBench()
    metadata = {"description": "the shop", "tags": ["prod"], "default_queue_type": "quorum"}
    expected = {"description": "the shop", "tags": ["prod"], "default_queue_type": "quorum", "limits": []}
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
                {"name": "shop", "metadata": metadata | {"protected_from_deletion": False}, **expected},
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


def test_an_import_may_pass_over_what_the_broker_does_not_have() -> None:
    place = DefinitionsBench()
    place.take({"queues": [{"name": "there", "vhost": "/", "arguments": {"x-max-priority": 5}}]})
    document = {
        "traces": [{"name": "t"}],
        "vhosts": [{"name": "v", "colour": "red"}],
        "exchanges": [
            {"name": "odd", "vhost": "v", "type": "x-odd"},
            {"name": "usual", "vhost": "v", "type": "topic"},
        ],
        "queues": [
            {"name": "there", "vhost": "/", "arguments": {"x-max-priority": 6}},
            {"name": "new", "vhost": "v"},
        ],
        "bindings": [
            {"source": source, "vhost": "v", "destination": to, "destination_type": kind, "routing_key": "k"}
            for source, to, kind in (
                ("odd", "new", "queue"),
                ("usual", "odd", "exchange"),
                ("usual", "new", "queue"),
            )
        ],
        "parameters": [
            {"vhost": "v", "component": "odd-plugin", "name": "n", "value": 1},
            {
                "vhost": "v",
                "component": "operator_policy",
                "name": "o",
                "value": {"pattern": "", "definition": {"max-length": 5, "odd": 1}},
            },
        ],
        "policies": [
            {"vhost": "v", "name": "part", "pattern": "", "definition": {"max-length": 9, "odd": 1}},
            {"vhost": "v", "name": "whole", "pattern": "", "definition": {"odd": 1, "strange": 2}},
        ],
    }
    assert place.problems(document), "by default an import is all or nothing"
    assert place.passed_over(document) == [
        "'traces' is not known",
        "vhost 'v': colour is not known",
        "parameter 'n' in vhost 'v': component 'odd-plugin' is not known, allowed: operator_policy, "
        "vhost-limits, shovel, federation-upstream, federation-upstream-set",
        "parameter 'o' in vhost 'v': odd is not known",
        "policy 'part' in vhost 'v': odd is not known",
        "policy 'whole' in vhost 'v': no key of its definition is known: odd, strange",
        "exchange 'odd' in vhost 'v': unknown exchange type 'x-odd'",
        "queue 'there' in vhost '/': inequivalent arg 'x-max-priority' for queue 'there' in vhost '/': "
        "received '6' but current is '5'",
        "binding from 'odd' to 'new' in vhost 'v': no exchange 'odd' in vhost 'v'",
        "binding from 'usual' to 'odd' in vhost 'v': no exchange 'odd' in vhost 'v'",
    ]
    vhost = place.broker.vhosts["v"]
    assert routed(vhost, "usual", "k") == ["new"]
    assert vhost.topology.queues["new"].effective == {"x-max-length": 5}
    assert [policy.name for policy in vhost.policies.policies.values()] == ["part"]


def test_wrong_objects_are_errors_also_where_unknown_ones_are_passed_over() -> None:
    place = DefinitionsBench()
    wrong = {
        "exchanges": [{"name": "odd", "vhost": "/", "type": "x-odd"}],
        "queues": [{"name": "q", "vhost": "/", "arguments": {"x-expires": 0}}],
        "bindings": [
            {"source": "x", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": ""}
        ],
    }
    with pytest.raises(DefinitionsError) as refused:
        place.passed_over(wrong)
    assert [problem.split(":")[0] for problem in refused.value.problems] == [
        "queue 'q' in vhost '/'",
        "binding from 'x' to 'q' in vhost '/'",
    ]


def test_an_export_for_rabbitmq_names_what_it_leaves_out() -> None:
    place = DefinitionsBench()
    place.take(definitions_of_rabbitmq())
    place.users.put("own", make_password("secret", 0), ())
    place.users.permit("own", "/", ".*", ".*", ".*")
    place.take(
        {
            "queues": [
                {"name": "q", "vhost": "/", "stopped": ["enqueue"]},
                {"name": "member", "vhost": "/"},
                {
                    "name": "front",
                    "vhost": "/",
                    "arguments": {
                        "x-queue-kind": "partitioned",
                        "x-partition-by": "key",
                        "x-partition-members": ["member"],
                    },
                },
            ],
            "bindings": [
                {
                    "source": "amq.fanout",
                    "vhost": "/",
                    "destination": "front",
                    "destination_type": "queue",
                    "routing_key": "",
                }
            ],
            "policies": [
                {"vhost": "/", "name": "p", "pattern": "", "definition": {"max-length": 9, "retry-max": 5}},
                {"vhost": "/", "name": "own", "pattern": "", "definition": {"retry-max": 5}},
            ],
            "dispatchers": [{"vhost": "/", "name": "d", "queue": "q", "command": "/bin/true"}],
        }
    )
    document = place.document(adaptation=ForRabbitMQ())
    assert document["left_out"] == [
        "user 'own': RabbitMQ cannot read the hash of the password",
        "policy 'p' in vhost '/': retry-max",
        "policy 'own' in vhost '/': retry-max",
        "queue 'front' in vhost '/': RabbitMQ has no partitioned queues",
        "dispatcher 'd' in vhost '/': RabbitMQ has none",
    ]
    assert "own" not in {user["name"] for user in document["users"]}
    assert "own" not in {permission["user"] for permission in document["permissions"]}
    assert [policy["definition"] for policy in document["policies"] if policy["vhost"] == "/"] == [
        {"max-length": 9}
    ]
    assert {queue["name"] for queue in document["queues"] if queue["vhost"] == "/"} == {"q", "member"}
    assert not any("stopped" in queue for queue in document["queues"])
    assert "front" not in {binding["destination"] for binding in document["bindings"]}
    assert document["dispatchers"] == []
    copy = DefinitionsBench()
    copy.take(document)
    again = copy.document(adaptation=ForRabbitMQ())
    assert again["left_out"] == []
    assert again["queues"] == document["queues"]


def test_a_protected_virtual_host_stays_protected_in_a_copy() -> None:
    place, copy = DefinitionsBench(), DefinitionsBench()
    place.broker.describe_vhost("/", "", (), None, protected=True)
    copy.take(place.document())
    assert copy.broker.vhosts["/"].protected
    copy.take({"vhosts": [{"name": "/", "description": "shop"}]})
    assert copy.broker.vhosts["/"].protected, "a file that does not name the protection changes nothing"
    copy.take({"vhosts": [{"name": "/", "metadata": {"protected_from_deletion": False}}]})
    assert not copy.broker.vhosts["/"].protected
