"""The composites of AMQP 1.0, out of the specification's XML. [amqp-1.0]

Derived by `python -m tests.support.amqp10.derived_modules` and not to be edited.
"""

from typing import Final, NamedTuple


class Field(NamedTuple):
    """A field of a composite.

    `type`: "*" means any type that provides what the field `requires`. `default`: the value that null means.
    """

    name: str
    type: str
    requires: str = ""
    mandatory: bool = False
    multiple: bool = False
    default: object = None


class Definition(NamedTuple):
    """A composite: a list of fields with a descriptor, the number `code` or the `symbol`."""

    name: str
    code: int
    provides: tuple[str, ...]
    fields: tuple[Field, ...]

    @property
    def symbol(self) -> str:
        """The symbolic descriptor."""
        return f"amqp:{self.name}:list"


# fmt: off
COMPOSITES: Final = (
    Definition("open", 0x10, ("frame",), (
        Field("container-id", "string", mandatory=True),
        Field("hostname", "string"),
        Field("max-frame-size", "uint", default=4294967295),
        Field("channel-max", "ushort", default=65535),
        Field("idle-time-out", "milliseconds"),
        Field("outgoing-locales", "ietf-language-tag", multiple=True),
        Field("incoming-locales", "ietf-language-tag", multiple=True),
        Field("offered-capabilities", "symbol", multiple=True),
        Field("desired-capabilities", "symbol", multiple=True),
        Field("properties", "fields"),
    )),
    Definition("begin", 0x11, ("frame",), (
        Field("remote-channel", "ushort"),
        Field("next-outgoing-id", "transfer-number", mandatory=True),
        Field("incoming-window", "uint", mandatory=True),
        Field("outgoing-window", "uint", mandatory=True),
        Field("handle-max", "handle", default=4294967295),
        Field("offered-capabilities", "symbol", multiple=True),
        Field("desired-capabilities", "symbol", multiple=True),
        Field("properties", "fields"),
    )),
    Definition("attach", 0x12, ("frame",), (
        Field("name", "string", mandatory=True),
        Field("handle", "handle", mandatory=True),
        Field("role", "role", mandatory=True),
        Field("snd-settle-mode", "sender-settle-mode", default=2),
        Field("rcv-settle-mode", "receiver-settle-mode", default=0),
        Field("source", "*", requires="source"),
        Field("target", "*", requires="target"),
        Field("unsettled", "map"),
        Field("incomplete-unsettled", "boolean", default=False),
        Field("initial-delivery-count", "sequence-no"),
        Field("max-message-size", "ulong"),
        Field("offered-capabilities", "symbol", multiple=True),
        Field("desired-capabilities", "symbol", multiple=True),
        Field("properties", "fields"),
    )),
    Definition("flow", 0x13, ("frame",), (
        Field("next-incoming-id", "transfer-number"),
        Field("incoming-window", "uint", mandatory=True),
        Field("next-outgoing-id", "transfer-number", mandatory=True),
        Field("outgoing-window", "uint", mandatory=True),
        Field("handle", "handle"),
        Field("delivery-count", "sequence-no"),
        Field("link-credit", "uint"),
        Field("available", "uint"),
        Field("drain", "boolean", default=False),
        Field("echo", "boolean", default=False),
        Field("properties", "fields"),
    )),
    Definition("transfer", 0x14, ("frame",), (
        Field("handle", "handle", mandatory=True),
        Field("delivery-id", "delivery-number"),
        Field("delivery-tag", "delivery-tag"),
        Field("message-format", "message-format"),
        Field("settled", "boolean"),
        Field("more", "boolean", default=False),
        Field("rcv-settle-mode", "receiver-settle-mode"),
        Field("state", "*", requires="delivery-state"),
        Field("resume", "boolean", default=False),
        Field("aborted", "boolean", default=False),
        Field("batchable", "boolean", default=False),
    )),
    Definition("disposition", 0x15, ("frame",), (
        Field("role", "role", mandatory=True),
        Field("first", "delivery-number", mandatory=True),
        Field("last", "delivery-number"),
        Field("settled", "boolean", default=False),
        Field("state", "*", requires="delivery-state"),
        Field("batchable", "boolean", default=False),
    )),
    Definition("detach", 0x16, ("frame",), (
        Field("handle", "handle", mandatory=True),
        Field("closed", "boolean", default=False),
        Field("error", "error"),
    )),
    Definition("end", 0x17, ("frame",), (
        Field("error", "error"),
    )),
    Definition("close", 0x18, ("frame",), (
        Field("error", "error"),
    )),
    Definition("error", 0x1D, (), (
        Field("condition", "symbol", requires="error-condition", mandatory=True),
        Field("description", "string"),
        Field("info", "fields"),
    )),
    Definition("header", 0x70, ("section",), (
        Field("durable", "boolean"),
        Field("priority", "ubyte"),
        Field("ttl", "milliseconds"),
        Field("first-acquirer", "boolean"),
        Field("delivery-count", "uint"),
    )),
    Definition("properties", 0x73, ("section",), (
        Field("message-id", "*", requires="message-id"),
        Field("user-id", "binary"),
        Field("to", "*", requires="address"),
        Field("subject", "string"),
        Field("reply-to", "*", requires="address"),
        Field("correlation-id", "*", requires="message-id"),
        Field("content-type", "symbol"),
        Field("content-encoding", "symbol"),
        Field("absolute-expiry-time", "timestamp"),
        Field("creation-time", "timestamp"),
        Field("group-id", "string"),
        Field("group-sequence", "sequence-no"),
        Field("reply-to-group-id", "string"),
    )),
    Definition("received", 0x23, ("delivery-state",), (
        Field("section-number", "uint", mandatory=True),
        Field("section-offset", "ulong", mandatory=True),
    )),
    Definition("accepted", 0x24, ("delivery-state", "outcome"), (
    )),
    Definition("rejected", 0x25, ("delivery-state", "outcome"), (
        Field("error", "error"),
    )),
    Definition("released", 0x26, ("delivery-state", "outcome"), (
    )),
    Definition("modified", 0x27, ("delivery-state", "outcome"), (
        Field("delivery-failed", "boolean"),
        Field("undeliverable-here", "boolean"),
        Field("message-annotations", "fields"),
    )),
    Definition("source", 0x28, ("source",), (
        Field("address", "*", requires="address"),
        Field("durable", "terminus-durability", default=0),
        Field("expiry-policy", "terminus-expiry-policy", default="session-end"),
        Field("timeout", "seconds", default=0),
        Field("dynamic", "boolean", default=False),
        Field("dynamic-node-properties", "node-properties"),
        Field("distribution-mode", "symbol", requires="distribution-mode"),
        Field("filter", "filter-set"),
        Field("default-outcome", "*", requires="outcome"),
        Field("outcomes", "symbol", multiple=True),
        Field("capabilities", "symbol", multiple=True),
    )),
    Definition("target", 0x29, ("target",), (
        Field("address", "*", requires="address"),
        Field("durable", "terminus-durability", default=0),
        Field("expiry-policy", "terminus-expiry-policy", default="session-end"),
        Field("timeout", "seconds", default=0),
        Field("dynamic", "boolean", default=False),
        Field("dynamic-node-properties", "node-properties"),
        Field("capabilities", "symbol", multiple=True),
    )),
    Definition("delete-on-close", 0x2B, ("lifetime-policy",), (
    )),
    Definition("delete-on-no-links", 0x2C, ("lifetime-policy",), (
    )),
    Definition("delete-on-no-messages", 0x2D, ("lifetime-policy",), (
    )),
    Definition("delete-on-no-links-or-messages", 0x2E, ("lifetime-policy",), (
    )),
    Definition("coordinator", 0x30, ("target",), (
        Field("capabilities", "symbol", requires="txn-capability", multiple=True),
    )),
    Definition("declare", 0x31, (), (
        Field("global-id", "*", requires="global-tx-id"),
    )),
    Definition("discharge", 0x32, (), (
        Field("txn-id", "*", requires="txn-id", mandatory=True),
        Field("fail", "boolean"),
    )),
    Definition("declared", 0x33, ("delivery-state", "outcome"), (
        Field("txn-id", "*", requires="txn-id", mandatory=True),
    )),
    Definition("transactional-state", 0x34, ("delivery-state",), (
        Field("txn-id", "*", requires="txn-id", mandatory=True),
        Field("outcome", "*", requires="outcome"),
    )),
    Definition("sasl-mechanisms", 0x40, ("sasl-frame",), (
        Field("sasl-server-mechanisms", "symbol", mandatory=True, multiple=True),
    )),
    Definition("sasl-init", 0x41, ("sasl-frame",), (
        Field("mechanism", "symbol", mandatory=True),
        Field("initial-response", "binary"),
        Field("hostname", "string"),
    )),
    Definition("sasl-challenge", 0x42, ("sasl-frame",), (
        Field("challenge", "binary", mandatory=True),
    )),
    Definition("sasl-response", 0x43, ("sasl-frame",), (
        Field("response", "binary", mandatory=True),
    )),
    Definition("sasl-outcome", 0x44, ("sasl-frame",), (
        Field("code", "sasl-code", mandatory=True),
        Field("additional-data", "binary"),
    )),
)
