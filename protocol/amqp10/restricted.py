"""The restricted types of AMQP 1.0. [amqp-1.0 types 1.4]

Derived by `python -m tests.support.amqp10.derived_modules` and not to be edited.
"""

from typing import Final, NamedTuple


class Restricted(NamedTuple):
    """A restricted type: a name for the type `source`; `choices`: the only values, by their names, if any."""

    name: str
    source: str
    provides: tuple[str, ...]
    choices: dict[str, object]


# fmt: off
RESTRICTED: Final = (
    Restricted("role", "boolean", (), {
        "sender": False,
        "receiver": True,
    }),
    Restricted("sender-settle-mode", "ubyte", (), {
        "unsettled": 0,
        "settled": 1,
        "mixed": 2,
    }),
    Restricted("receiver-settle-mode", "ubyte", (), {
        "first": 0,
        "second": 1,
    }),
    Restricted("handle", "uint", (), {}),
    Restricted("seconds", "uint", (), {}),
    Restricted("milliseconds", "uint", (), {}),
    Restricted("delivery-tag", "binary", (), {}),
    Restricted("delivery-number", "sequence-no", (), {}),
    Restricted("transfer-number", "sequence-no", (), {}),
    Restricted("sequence-no", "uint", (), {}),
    Restricted("message-format", "uint", (), {}),
    Restricted("ietf-language-tag", "symbol", (), {}),
    Restricted("fields", "map", (), {}),
    Restricted("amqp-error", "symbol", ("error-condition",), {
        "internal-error": "amqp:internal-error",
        "not-found": "amqp:not-found",
        "unauthorized-access": "amqp:unauthorized-access",
        "decode-error": "amqp:decode-error",
        "resource-limit-exceeded": "amqp:resource-limit-exceeded",
        "not-allowed": "amqp:not-allowed",
        "invalid-field": "amqp:invalid-field",
        "not-implemented": "amqp:not-implemented",
        "resource-locked": "amqp:resource-locked",
        "precondition-failed": "amqp:precondition-failed",
        "resource-deleted": "amqp:resource-deleted",
        "illegal-state": "amqp:illegal-state",
        "frame-size-too-small": "amqp:frame-size-too-small",
    }),
    Restricted("connection-error", "symbol", ("error-condition",), {
        "connection-forced": "amqp:connection:forced",
        "framing-error": "amqp:connection:framing-error",
        "redirect": "amqp:connection:redirect",
    }),
    Restricted("session-error", "symbol", ("error-condition",), {
        "window-violation": "amqp:session:window-violation",
        "errant-link": "amqp:session:errant-link",
        "handle-in-use": "amqp:session:handle-in-use",
        "unattached-handle": "amqp:session:unattached-handle",
    }),
    Restricted("link-error", "symbol", ("error-condition",), {
        "detach-forced": "amqp:link:detach-forced",
        "transfer-limit-exceeded": "amqp:link:transfer-limit-exceeded",
        "message-size-exceeded": "amqp:link:message-size-exceeded",
        "redirect": "amqp:link:redirect",
        "stolen": "amqp:link:stolen",
    }),
    Restricted("delivery-annotations", "annotations", ("section",), {}),
    Restricted("message-annotations", "annotations", ("section",), {}),
    Restricted("application-properties", "map", ("section",), {}),
    Restricted("data", "binary", ("section",), {}),
    Restricted("amqp-sequence", "list", ("section",), {}),
    Restricted("amqp-value", "*", ("section",), {}),
    Restricted("footer", "annotations", ("section",), {}),
    Restricted("annotations", "map", (), {}),
    Restricted("message-id-ulong", "ulong", ("message-id",), {}),
    Restricted("message-id-uuid", "uuid", ("message-id",), {}),
    Restricted("message-id-binary", "binary", ("message-id",), {}),
    Restricted("message-id-string", "string", ("message-id",), {}),
    Restricted("address-string", "string", ("address",), {}),
    Restricted("terminus-durability", "uint", (), {
        "none": 0,
        "configuration": 1,
        "unsettled-state": 2,
    }),
    Restricted("terminus-expiry-policy", "symbol", (), {
        "link-detach": "link-detach",
        "session-end": "session-end",
        "connection-close": "connection-close",
        "never": "never",
    }),
    Restricted("std-dist-mode", "symbol", ("distribution-mode",), {
        "move": "move",
        "copy": "copy",
    }),
    Restricted("filter-set", "map", (), {}),
    Restricted("node-properties", "fields", (), {}),
    Restricted("transaction-id", "binary", ("txn-id",), {}),
    Restricted("txn-capability", "symbol", ("txn-capability",), {
        "local-transactions": "amqp:local-transactions",
        "distributed-transactions": "amqp:distributed-transactions",
        "promotable-transactions": "amqp:promotable-transactions",
        "multi-txns-per-ssn": "amqp:multi-txns-per-ssn",
        "multi-ssns-per-txn": "amqp:multi-ssns-per-txn",
    }),
    Restricted("transaction-error", "symbol", ("error-condition",), {
        "unknown-id": "amqp:transaction:unknown-id",
        "transaction-rollback": "amqp:transaction:rollback",
        "transaction-timeout": "amqp:transaction:timeout",
    }),
    Restricted("sasl-code", "ubyte", (), {
        "ok": 0,
        "auth": 1,
        "sys": 2,
        "sys-perm": 3,
        "sys-temp": 4,
    }),
)
