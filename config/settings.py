"""The settings of the daemon, each with its name, meaning, form and default."""

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from config import targets, values
from config.values import Endpoint

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
MEGABYTE: Final = 10**6

MECHANISMS: Final = ("PLAIN", "AMQPLAIN", "SCRAM-SHA-256", "EXTERNAL")
ADDRESS: Final = "HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:5672 or [::1]:5672"
SIZE: Final = 'a number of bytes such as 1048576 or "64MiB"'


class Settings(BaseModel):
    """The settings of the daemon. Immutable; every field can be set by flag, environment and file alike.

    Each field's description is its help text; `allowed` in its schema extra describes the allowed values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    data_dir: Annotated[Path, BeforeValidator(values.parse_folder)] = Field(
        default=Path("amqpd-data"),
        description="Folder for everything durable; created with mode 0700.",
        json_schema_extra={"allowed": "the path of a folder"},
    )
    listen: Annotated[tuple[Endpoint, ...], BeforeValidator(values.parse_endpoints)] = Field(
        default=(Endpoint("127.0.0.1", 5672),),
        description="Addresses to listen on for AMQP.",
        json_schema_extra={"allowed": f"one or more of {ADDRESS}"},
    )
    tls_listen: Annotated[tuple[Endpoint, ...], BeforeValidator(values.parse_endpoints_or_off)] = Field(
        default=(),
        description="Addresses to listen on for AMQP over TLS. Needs tls_certificate.",
        json_schema_extra={"allowed": f"any number of {ADDRESS}, or off"},
    )
    websocket_listen: Annotated[tuple[Endpoint, ...], BeforeValidator(values.parse_endpoints_or_off)] = Field(
        default=(),
        description="Addresses to listen on for AMQP over WebSocket.",
        json_schema_extra={"allowed": f"any number of {ADDRESS}, or off"},
    )
    websocket_tls_listen: Annotated[tuple[Endpoint, ...], BeforeValidator(values.parse_endpoints_or_off)] = (
        Field(
            default=(),
            description="Addresses to listen on for AMQP over WebSocket and TLS. Needs tls_certificate.",
            json_schema_extra={"allowed": f"any number of {ADDRESS}, or off"},
        )
    )
    websocket_origins: Annotated[tuple[str, ...], BeforeValidator(values.parse_origins)] = Field(
        default=(),
        description="Origins of web pages that may open a WebSocket, besides the broker's own host; or any.",
        json_schema_extra={"allowed": "any number of origins such as https://app.example.org, any, or off"},
    )
    tls_certificate: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="The broker's certificate with its chain, PEM. SIGHUP reads the file again.",
        json_schema_extra={"allowed": "the path of a file, or none"},
    )
    tls_key: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="The certificate's private key, PEM, not encrypted; none: the key is in tls_certificate.",
        json_schema_extra={"allowed": "the path of a file, or none"},
    )
    tls_ca: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="Certificates of the authorities that may have signed a client's certificate, PEM.",
        json_schema_extra={"allowed": "the path of a file, or none"},
    )
    tls_verify: Annotated[Literal["off", "optional", "required"], BeforeValidator(values.fold_case)] = Field(
        default="off",
        description="Whether clients may or must show a certificate. Needs tls_ca.",
        json_schema_extra={"allowed": "off, optional or required"},
    )
    tls_min_version: Annotated[Literal["1.2", "1.3"], BeforeValidator(values.fold_case)] = Field(
        default="1.2",
        description="Oldest version of TLS that the broker accepts.",
        json_schema_extra={"allowed": '"1.2" or "1.3"'},
    )
    tls_login_from: Annotated[
        Literal["common_name", "distinguished_name", "subject_alternative_name"],
        BeforeValidator(values.fold_case),
    ] = Field(
        default="distinguished_name",
        description="Part of a client's certificate that names the user of a log-in by EXTERNAL.",
        json_schema_extra={"allowed": "common_name, distinguished_name or subject_alternative_name"},
    )
    tls_login_san_type: Annotated[Literal["dns", "email", "ip", "uri"], BeforeValidator(values.fold_case)] = (
        Field(
            default="dns",
            description="Kind of subject alternative name that names the user; the first of its kind counts.",
            json_schema_extra={"allowed": "dns, email, ip or uri"},
        )
    )
    admin: Annotated[Endpoint | None, BeforeValidator(values.parse_endpoint_or_off)] = Field(
        default=Endpoint("127.0.0.1", 15672),
        description="Address to listen on for admin HTTP (API, metrics, health), or off.",
        json_schema_extra={"allowed": f"{ADDRESS}, or off"},
    )
    admin_tls_listen: Annotated[tuple[Endpoint, ...], BeforeValidator(values.parse_endpoints_or_off)] = Field(
        default=(),
        description="Addresses to listen on for admin HTTP over TLS. Needs a certificate.",
        json_schema_extra={"allowed": f"any number of {ADDRESS}, or off"},
    )
    admin_tls_certificate: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="The admin port's certificate with its chain, PEM; none: tls_certificate and tls_key.",
        json_schema_extra={"allowed": "the path of a file, or none"},
    )
    admin_tls_key: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="The private key of admin_tls_certificate, PEM; none: the key is in that file.",
        json_schema_extra={"allowed": "the path of a file, or none"},
    )
    admin_tls_ca: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="Authorities that may have signed the certificate of an admin client; none: tls_ca.",
        json_schema_extra={"allowed": "the path of a file, or none"},
    )
    admin_tls_verify: Annotated[Literal["off", "optional", "required"], BeforeValidator(values.fold_case)] = (
        Field(
            default="off",
            description="Whether admin clients may or must show a certificate.",
            json_schema_extra={"allowed": "off, optional or required"},
        )
    )
    admin_origins: Annotated[tuple[str, ...], BeforeValidator(values.parse_origins)] = Field(
        default=(),
        description="Origins of web pages that may change objects by HTTP, besides the same host; or any.",
        json_schema_extra={"allowed": "any number of origins such as https://app.example.org, any, or off"},
    )
    admin_page: Annotated[bool, BeforeValidator(values.parse_switch)] = Field(
        default=True,
        description="Whether browsers get the management page at the path / of admin HTTP.",
        json_schema_extra={"allowed": "true or false"},
    )
    metrics_per_object: Annotated[bool, BeforeValidator(values.parse_switch)] = Field(
        default=False,
        description="Whether GET /metrics shows each queue, connection and channel instead of sums.",
        json_schema_extra={"allowed": "true or false"},
    )
    admin_header_timeout_ms: Annotated[
        int, BeforeValidator(values.parse_whole_number), Field(ge=100, le=3_600_000)
    ] = Field(
        default=10_000,
        description="Milliseconds in which a client of admin HTTP must send the head of a request.",
        json_schema_extra={"allowed": "100 to 3600000"},
    )
    admin_body_timeout_ms: Annotated[
        int, BeforeValidator(values.parse_whole_number), Field(ge=100, le=3_600_000)
    ] = Field(
        default=30_000,
        description="Milliseconds without progress of a request body, or of an answer to an unknown client.",
        json_schema_extra={"allowed": "100 to 3600000"},
    )
    admin_connections_per_address: Annotated[
        int, BeforeValidator(values.parse_whole_number), Field(ge=1, le=10**6)
    ] = Field(
        default=256,
        description="Most connections of admin HTTP from one address; a new one closes the oldest idle one.",
        json_schema_extra={"allowed": "1 to 1000000"},
    )
    admin_connections: Annotated[int, BeforeValidator(values.parse_whole_number), Field(ge=1, le=10**6)] = (
        Field(
            default=1024,
            description="Most connections of admin HTTP, and a quarter of the file descriptors at most.",
            json_schema_extra={"allowed": "1 to 1000000"},
        )
    )
    default_user: Annotated[str, Field(min_length=1, max_length=255)] = Field(
        default="guest",
        description="First user, created when there are no users; guest may log in from loopback only.",
        json_schema_extra={"allowed": "1 to 255 characters"},
    )
    default_pass: Annotated[SecretStr, Field(min_length=1)] = Field(
        default=SecretStr("guest"),
        description="Password of the first user.",
        json_schema_extra={"allowed": "at least 1 character"},
    )
    load_definitions: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="File with definitions in RabbitMQ's form, imported when the broker starts; or none.",
        json_schema_extra={"allowed": "the path of a file, or none"},
    )
    definitions_skip_unchanged: Annotated[bool, BeforeValidator(values.parse_switch)] = Field(
        default=True,
        description="Import the file of load_definitions only if it has changed since the last import.",
        json_schema_extra={"allowed": "true or false"},
    )
    load_definitions_skip: Annotated[bool, BeforeValidator(values.parse_switch)] = Field(
        default=False,
        description="Pass over what amqpd does not have in the file of load_definitions, and warn of it.",
        json_schema_extra={"allowed": "true or false"},
    )
    sasl_mechanisms: Annotated[
        tuple[str, ...], BeforeValidator(values.make_words_parser(MECHANISMS)), Field(min_length=1)
    ] = Field(
        default=MECHANISMS,
        description="Mechanisms of log-in; EXTERNAL is offered where a certificate names a user.",
        json_schema_extra={"allowed": f"one or more of {', '.join(MECHANISMS)}"},
    )
    anonymous_user: Annotated[str | None, BeforeValidator(values.parse_text_or_off)] = Field(
        default=None,
        description="User as whom anybody may log in without a password (ANONYMOUS), or off.",
        json_schema_extra={"allowed": "the name of a user, or off"},
    )
    scram_iterations: Annotated[
        int,
        BeforeValidator(values.parse_whole_number),
        AfterValidator(values.make_minimum_check(4096)),
        Field(le=10**7),
    ] = Field(
        default=100_000,
        description="Iterations of a new password's SCRAM verifier; 0: no verifiers, no SCRAM.",
        json_schema_extra={"allowed": "0, or 4096 to 10000000"},
    )
    strangers_max: Annotated[int, BeforeValidator(values.parse_whole_number), Field(ge=1, le=10**6)] = Field(
        default=1024,
        description="Most connections that have not logged in; a new one closes the oldest.",
        json_schema_extra={"allowed": "1 to 1000000"},
    )
    log_format: Annotated[Literal["console", "json"], BeforeValidator(values.fold_case)] = Field(
        default="console",
        description="Log lines on standard error: for people, or one JSON object per line.",
        json_schema_extra={"allowed": "console or json"},
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(values.fold_case)] = (
        Field(
            default="info",
            description="Least severity that is logged.",
            json_schema_extra={"allowed": "debug, info, warning or error"},
        )
    )
    frame_max: Annotated[int, BeforeValidator(values.parse_whole_number), Field(ge=4096, le=2**31 - 1)] = (
        Field(
            default=128 * KIB,
            description="Largest AMQP 0-9-1 frame offered to clients, in bytes.",
            json_schema_extra={"allowed": "4096 to 2147483647"},
        )
    )
    channel_max: Annotated[int, BeforeValidator(values.parse_whole_number), Field(ge=1, le=65535)] = Field(
        default=2047,
        description="Most channels of one connection.",
        json_schema_extra={"allowed": "1 to 65535"},
    )
    heartbeat: Annotated[int, BeforeValidator(values.parse_whole_number), Field(ge=0, le=65535)] = Field(
        default=60,
        description="Seconds between heartbeats that the broker proposes to clients; 0: no heartbeats.",
        json_schema_extra={"allowed": "0 to 65535"},
    )
    compat_product: Annotated[str | None, BeforeValidator(values.parse_text_or_off)] = Field(
        default=None,
        description="Product name that clients read; some clients behave better with RabbitMQ.",
        json_schema_extra={"allowed": "a name"},
    )
    compat_version: Annotated[str | None, BeforeValidator(values.parse_text_or_off)] = Field(
        default=None,
        description="Version that clients read; off: amqpd's, or RabbitMQ's 3.13.7 (0-9-1), 4.2.0 (1.0) and "
        "3.13.0 (HTTP).",
        json_schema_extra={"allowed": "a version"},
    )
    amqp_value_as_text: Annotated[bool, BeforeValidator(values.parse_switch)] = Field(
        default=False,
        description="Whether AMQP 0-9-1 clients get a string or binary value as a plain body.",
        json_schema_extra={"allowed": "true or false"},
    )
    auto_create: Annotated[tuple[str, ...], BeforeValidator(values.parse_patterns)] = Field(
        default=(),
        description="Patterns of queue names that AMQP 1.0 links create, besides /queue/NAME and queue://NAME.",
        json_schema_extra={"allowed": "any number of regular expressions over names of queues, or off"},
    )
    dispatch_allow: Annotated[tuple[str, ...], BeforeValidator(targets.parse_targets)] = Field(
        default=(),
        description="Targets that dispatchers may call: prefixes of URLs, and absolute paths of commands.",
        json_schema_extra={"allowed": "any number of URLs with http or https, and of absolute paths, or off"},
    )
    handshake_timeout_s: Annotated[int, BeforeValidator(values.parse_whole_number), Field(ge=1, le=3600)] = (
        Field(
            default=10,
            description="Seconds in which a new connection must be open.",
            json_schema_extra={"allowed": "1 to 3600"},
        )
    )
    consumer_timeout_ms: Annotated[
        int, BeforeValidator(values.parse_whole_number), Field(ge=0, le=315_360_000_000)
    ] = Field(
        default=0,
        description="Milliseconds to settle a delivery in, without x-consumer-timeout of consumer or queue; "
        "0: no limit.",
        json_schema_extra={"allowed": "0 to 315360000000"},
    )
    exclusive_drain_ms: Annotated[
        int, BeforeValidator(values.parse_whole_number), Field(ge=0, le=315_360_000_000)
    ] = Field(
        default=30_000,
        description="Milliseconds that an exclusive consumer waits for the deliveries of a cancelled one; "
        "0: no limit.",
        json_schema_extra={"allowed": "0 to 315360000000"},
    )
    message_size_max: Annotated[int, BeforeValidator(values.parse_size), Field(ge=1, le=512 * MIB)] = Field(
        default=128 * MIB,
        description="Largest message body accepted, in bytes.",
        json_schema_extra={"allowed": f"{SIZE}, from 1 to 512MiB"},
    )
    transaction_size_max: Annotated[int, BeforeValidator(values.parse_size), Field(ge=1, le=GIB)] = Field(
        default=128 * MIB,
        description="Largest sum of the publishes of one transaction, in bytes.",
        json_schema_extra={"allowed": f"{SIZE}, from 1 to 1GiB"},
    )
    transaction_timeout_ms: Annotated[
        int, BeforeValidator(values.parse_whole_number), Field(ge=0, le=315_360_000_000)
    ] = Field(
        default=0,
        description="Milliseconds that a transaction of AMQP 1.0 may be open; 0: no limit.",
        json_schema_extra={"allowed": "0 to 315360000000"},
    )
    segment_bytes: Annotated[int, BeforeValidator(values.parse_size), Field(ge=64 * KIB, le=1 * GIB)] = Field(
        default=64 * MIB,
        description="Size of one file of the log, in bytes.",
        json_schema_extra={"allowed": f"{SIZE}, from 64KiB to 1GiB"},
    )
    sync_helper_lost: Annotated[Literal["stop", "refuse"], BeforeValidator(values.fold_case)] = Field(
        default="stop",
        description="Reaction to the death of the process that syncs the log. With stop the broker ends with "
        "status 1, for a supervisor to restart it. With refuse the broker goes on and keeps nothing on disk.",
        json_schema_extra={"allowed": "stop or refuse"},
    )
    memory_max: Annotated[
        int, BeforeValidator(values.make_share_parser(values.read_memory_limit)), Field(ge=0)
    ] = Field(
        # A text, so that each machine computes its own share.
        default="60%",  # type: ignore[assignment]
        description="Memory of the process above which publishers wait; 0: no limit.",
        json_schema_extra={"allowed": f'{SIZE}, or per cent of the memory such as "60%"'},
    )
    disk_free_min: Annotated[int, BeforeValidator(values.parse_size), Field(ge=0)] = Field(
        default=50 * MEGABYTE,
        description="Free space on the disk of the data below which publishers wait.",
        json_schema_extra={"allowed": f"{SIZE}, at least 0"},
    )
    memory_budget: Annotated[
        int, BeforeValidator(values.make_share_parser(values.read_memory_limit)), Field(ge=MIB)
    ] = Field(
        # A text, so that each machine computes its own share.
        default="40%",  # type: ignore[assignment]
        description="Memory for message bodies; further bodies are on disk only.",
        json_schema_extra={"allowed": f'{SIZE}, at least 1MiB, or per cent of the memory such as "40%"'},
    )
    node_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}$")] = Field(
        default="amqpd",
        description="Name of this broker in journals.",
        json_schema_extra={"allowed": "1 to 64 letters, digits and any of _ . -, the last one not first"},
    )
    journal: Annotated[Literal["off", "lifecycle", "full"], BeforeValidator(values.fold_case)] = Field(
        default="off",
        description="Level of the journal for queues without x-journal.",
        json_schema_extra={"allowed": "off, lifecycle or full"},
    )
    journal_dir: Annotated[Path | None, BeforeValidator(values.parse_file_or_none)] = Field(
        default=None,
        description="Folder for the journal; none: journal in data_dir.",
        json_schema_extra={"allowed": "the path of a folder, or none"},
    )
    journal_sync: Annotated[Literal["off", "second"], BeforeValidator(values.fold_case)] = Field(
        default="off",
        description="Whether the broker syncs the journal each second; off: the system decides.",
        json_schema_extra={"allowed": "off or second"},
    )
    journal_file_bytes: Annotated[int, BeforeValidator(values.parse_size), Field(ge=64 * KIB, le=GIB)] = (
        Field(
            default=64 * MIB,
            description="Size of one file of the journal, in bytes.",
            json_schema_extra={"allowed": f"{SIZE}, from 64KiB to 1GiB"},
        )
    )
    journal_file_s: Annotated[int, BeforeValidator(values.parse_whole_number), Field(ge=1, le=86400)] = Field(
        default=60,
        description="Seconds after which a file of the journal is complete.",
        json_schema_extra={"allowed": "1 to 86400"},
    )
    journal_free_min: Annotated[int, BeforeValidator(values.parse_size), Field(ge=0)] = Field(
        default=GIB,
        description="Free space below which the journal records less; below half of that it records nothing.",
        json_schema_extra={"allowed": f"{SIZE}, at least 0"},
    )
    journal_mandatory: Annotated[bool, BeforeValidator(values.parse_switch)] = Field(
        default=False,
        description="Whether publishers wait while the journal cannot be written.",
        json_schema_extra={"allowed": "true or false"},
    )


def allowed_values(name: str) -> str:
    """Return the allowed values of setting `name`, in words."""
    extra = Settings.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return str(extra["allowed"])


def word_for_absent(name: str) -> str:
    """Return the word that switches setting `name` off: `none` for a file, `off` for others."""
    return "none" if allowed_values(name).endswith("none") else "off"


def is_secret(name: str) -> bool:
    """Whether the value of setting `name` must never be shown."""
    return Settings.model_fields[name].annotation is SecretStr
