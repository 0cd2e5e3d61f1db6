"""The definition of a dispatcher: every wrong field is refused by name and value."""

import re
from typing import Any

import pytest

from broker.core.errors import PreconditionFailed
from broker.dispatch.definition import FIELDS, definition_of, definition_of_change

URL = "https://example.org/hook"
WHERE = "dispatcher 'd' in vhost '/': "


def of(**fields: Any) -> Any:
    given = {"queue": "q", "url": URL} | fields
    return definition_of("/", "d", {name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"queue": None}, "'queue' is missing"),
        ({"queue": ""}, "'queue' is \"\", allowed: a text"),
        ({"queue": 7}, "'queue' is 7, allowed: a text"),
        ({"url": None}, "it needs either 'url' or 'command', and not both"),
        ({"command": "/bin/true"}, "it needs either 'url' or 'command', and not both"),
        ({"url": "ftp://x"}, "'url' is \"ftp://x\": the URL begins neither"),
        ({"url": "http://u:p@x/"}, "'url' is \"http://u:p@x/\": the URL names a user"),
        ({"url": None, "command": "true"}, "'command' is \"true\": the path of a command begins with /"),
        ({"url": None, "command": []}, "'command' is [], allowed: an absolute path, or a list"),
        ({"url": None, "command": ["/bin/true", 1]}, "allowed: an absolute path, or a list"),
        ({"conccurrency": 2}, "'conccurrency' is not known, allowed: queue, url"),
        ({"concurrency": 0}, "'concurrency' is 0, allowed: a whole number from 1 to 10000"),
        ({"concurrency": True}, "'concurrency' is true, allowed: a whole number"),
        ({"batch": "2"}, "'batch' is \"2\", allowed: a whole number"),
        ({"rate": -1}, "'rate' is -1, allowed: 0, or 0.001 to 1000000 calls a second"),
        ({"timeout_ms": 0}, "'timeout_ms' is 0, allowed: a whole number from 1"),
        ({"format": "xml"}, "'format' is \"xml\", allowed: plain, cloudevents-binary"),
        ({"paused": "yes"}, "'paused' is \"yes\", allowed: true or false"),
        ({"trigger": "now"}, "'trigger' is \"now\", allowed: an object"),
        ({"trigger": {"kind": "now"}}, "'trigger.kind' is \"now\", allowed: every-message, when-idle"),
        ({"trigger": {"size": 2}}, "'trigger.size' is not known, allowed: kind, length"),
        ({"trigger": {"kind": "length"}}, "'trigger.length' goes with the kind length, and only so"),
        ({"trigger": {"length": 2}}, "'trigger.length' goes with the kind length, and only so"),
        ({"trigger": {"every_ms": 2}}, "'trigger.every_ms' goes with the kinds interval and length only"),
        ({"trigger": {"kind": "interval"}}, "the kind interval needs 'trigger.every_ms' or 'trigger.cron'"),
        ({"trigger": {"cron": "* * * * *"}}, "no other kind has 'trigger.cron'"),
        (
            {"trigger": {"kind": "interval", "every_ms": 1, "cron": "* * * * *"}},
            "'trigger' has either 'every_ms' or 'cron', and not both",
        ),
        ({"trigger": {"kind": "interval", "cron": "* * * *"}}, "a cron expression has five fields"),
        ({"trigger": {"kind": "interval", "cron": "61 * * * *"}}, "Bad minute"),
        ({"trigger": {"kind": "interval", "cron": "0 0 30 2 *"}}, "'trigger.cron' is"),
        ({"trigger": {"kind": "interval", "cron": 5}}, "'trigger.cron' is 5: not a text"),
        (
            {"trigger": {"kind": "when-idle"}, "concurrency": 2},
            "'concurrency' is 2, but the trigger",
        ),
        ({"format": "cloudevents-binary", "batch": 2}, "the format cloudevents-binary has one message"),
        ({"answers": {"200": "reject"}}, "'answers.200' is not known"),
        ({"answers": {"signal": "reject"}}, "'answers.signal' is not known"),
        ({"answers": {"404": "drop"}}, "'answers.404' is \"drop\", allowed: retry, reject, dead-letter"),
        ({"url": None, "command": "/x", "answers": {"256": "reject"}}, "'answers.256' is not known"),
        ({"url": None, "command": "/x", "headers": {"A": "b"}}, "'headers' is for a 'url'"),
        ({"url": None, "command": "/x", "format": "cloudevents-binary"}, "is for a 'url'"),
        ({"headers": {"A B": "x"}}, "'headers.A B' cannot be set"),
        ({"headers": {"Host": "x"}}, "'headers.Host' cannot be set"),
        ({"headers": {"A": "x", "a": "y"}}, "'headers.A' cannot be set"),
        ({"headers": {"A": "x\ny"}}, "'headers.A' is \"x\\ny\", allowed: printable ASCII"),
        ({"headers": {"Authorization": "Bearer 1"}}, "'headers.Authorization' is a secret"),
        ({"headers": {"Authorization": {"text": "s3cret"}}}, "is no reference to a secret"),
        ({"secret": "s3cret"}, "'secret' is no reference to a secret"),
        ({"secret": {"file": "relative"}}, "'secret' is no reference to a secret"),
        (
            {"secret": {"env": "AMQPD_DEFAULT_PASS"}},
            "'secret' names AMQPD_DEFAULT_PASS, a setting",
        ),
        ({"ca": "here"}, "'ca' is \"here\", allowed: an absolute path"),
        ({"url": "http://example.org", "ca": "/ca.pem"}, "'ca' is for a 'url' with https"),
        ({"breaker": {"wait_ms": 10, "wait_max_ms": 5}}, "'breaker.wait_max_ms' is 5, less than"),
        ({"breaker": {"fail": 1}}, "'breaker.fail' is not known"),
        ({"selector": "a ="}, "'selector': "),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_value(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        of(**fields)
    assert refusal.value.text.startswith(WHERE)
    assert reason in refusal.value.text
    assert "s3cret" not in refusal.value.text


def test_a_name_is_needed() -> None:
    with pytest.raises(PreconditionFailed, match="a dispatcher needs a name"):
        definition_of("/", "", {"queue": "q", "url": URL})
    with pytest.raises(PreconditionFailed, match="dispatcher name is 256 bytes long"):
        definition_of("/", "x" * 256, {"queue": "q", "url": URL})


FULL: dict[str, Any] = {
    "trigger": {"kind": "length", "length": 10, "every_ms": 5000},
    "batch": 10,
    "concurrency": 4,
    "latency_ms": 200,
    "rate": 12.5,
    "timeout_ms": 1000,
    "size_max": 1000,
    "format": "cloudevents-structured",
    "headers": {"X-A": "b", "Authorization": {"file": "/run/secrets/token"}},
    "secret": {"env": "HOOK_SECRET"},
    "ca": "/etc/ca.pem",
    "answers": {"4xx": "reject", "timeout": "dead-letter"},
    "breaker": {"failures": 2, "wait_ms": 10, "wait_max_ms": 100},
    "priority": -3,
    "selector": "a = 1",
    "paused": True,
}


@pytest.mark.parametrize(
    "definition", [of(), of(**FULL), of(url=None, command=["/bin/cat", "-"], answers={"65": "reject"})]
)
def test_a_definition_comes_back_from_its_json_and_from_the_log(definition: Any) -> None:
    assert definition_of("/", "d", definition.shown()) == definition
    assert definition_of_change(definition.change()) == definition
    assert set(definition.shown()) | {"url", "command"} == set(FIELDS)


def test_the_answer_of_the_api_can_be_sent_back() -> None:
    shown = {"vhost": "/", "name": "d", "status": {"state": "running"}} | of().shown()
    assert definition_of("/", "d", shown) == of()


def test_secrets_are_shown_as_references() -> None:
    text = re.sub(r"\s", "", str(of(**FULL).shown()))
    assert "{'file':'/run/secrets/token'}" in text
    assert "{'env':'HOOK_SECRET'}" in text


@pytest.mark.parametrize(
    "change", [{"kind": "dispatcher"}, {"kind": "dispatcher", "vhost": "/", "name": "d"}]
)
def test_a_broken_change_of_the_log_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"dispatcher|queue"):
        definition_of_change(change)
