"""Load the settings: flag before environment before settings file before defaults file before default.

A wrong key or value is refused. The refusal names the key, the place that set it, and the allowed values.
Secrets stay hidden.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from config.settings import Settings, allowed_values, is_secret
from config.values import is_none, is_off, parse_folder

PREFIX: Final = "AMQPD_"
CONFIG: Final = "config"
CONFIG_DEFAULTS: Final = "config_defaults"
"""The name of the defaults file: a settings file of an installation, such as the container image's."""

LEVELS_MAX: Final = 16
"""Maximum levels of lists and tables in the value of a setting. A correct value has a single list at most."""

NOT_SETTINGS: Final = frozenset({"AMQPD_COMPILE"})
"""Variables of the same prefix that belong to the build."""

_SERVICE_LINK: Final = re.compile(
    r"AMQPD_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)", re.ASCII
)
"""Variables that container platforms set by themselves where a service is called amqpd."""


class SettingsError(Exception):
    """The settings are not usable; the text has a line for each error."""


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value, and the place that set it."""

    value: object
    source: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and for each name the place that set it."""

    settings: Settings
    sources: Mapping[str, str]


def load(flags: Mapping[str, object], environ: Mapping[str, str]) -> LoadedSettings:
    """Load the settings from `flags` (by setting name; None or an empty list: not set), environment and file.

    `flags["config"]` or AMQPD_CONFIG names the settings file. AMQPD_CONFIG_DEFAULTS names the defaults file.
    Raises SettingsError.
    """
    problems: list[str] = []
    given = _read_environment(environ, problems)
    for name, value in flags.items():
        if value is not None and value != []:
            given[name] = GivenValue(value, f"flag {flag(name)}")
    for name in (CONFIG, CONFIG_DEFAULTS):
        file = given.pop(name, None)
        if file is not None:
            given = _read_file(name, file, problems) | given
    _check_first_user(given, problems)
    _check_tls(given, problems)
    settings = _validate(given, problems)
    if settings is None or problems:
        raise SettingsError("\n".join(problems))
    sources = {name: given[name].source if name in given else "default" for name in Settings.model_fields}
    return LoadedSettings(settings, sources)


def flag(name: str) -> str:
    """The flag of setting `name`."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The environment variable of setting `name`."""
    return PREFIX + name.upper()


def _validate(given: Mapping[str, GivenValue], problems: list[str]) -> Settings | None:
    try:
        return Settings.model_validate({name: item.value for name, item in given.items()})
    except ValidationError as error:
        problems += [_describe(detail, given) for detail in error.errors(include_url=False)]
        return None


def _read_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, GivenValue]:
    names = {variable(name): name for name in (*Settings.model_fields, CONFIG, CONFIG_DEFAULTS)}
    settings: dict[str, GivenValue] = {}
    for key, value in sorted(environ.items()):
        if key in names:
            settings[names[key]] = GivenValue(value, f"environment {key}")
        elif key.startswith(PREFIX) and key not in NOT_SETTINGS and not _SERVICE_LINK.fullmatch(key):
            problems.append(f"{key} (environment): no such setting; {_suggest_names(key, names)}")
    return settings


def _read_file(name: str, file: GivenValue, problems: list[str]) -> dict[str, GivenValue]:
    try:
        path = parse_folder(str(file.value))
    except ValueError as error:
        problems.append(f"{name} = {str(file.value)!r} ({file.source}): {error}")
        return {}
    try:
        with path.open("rb") as stream:
            content = tomllib.load(stream)
    except OSError as error:
        problems.append(f"{name} = {str(path)!r} ({file.source}): cannot be read: {error.strerror}")
        return {}
    except UnicodeDecodeError as error:
        problem = f"not a TOML file: not valid UTF-8 at byte {error.start}"
        problems.append(f"{name} = {str(path)!r} ({file.source}): {problem}")
        return {}
    except RecursionError:
        problem = f"a value is nested more than {LEVELS_MAX} levels deep"
        problems.append(f"{name} = {str(path)!r} ({file.source}): {problem}")
        return {}
    except ValueError as error:  # ValueError: also for a number of thousands of digits
        problems.append(f"{name} = {str(path)!r} ({file.source}): not a TOML file: {error}")
        return {}
    settings: dict[str, GivenValue] = {}
    for key, value in content.items():
        if key in Settings.model_fields and _is_too_deep(value):
            problems.append(
                f"{key} (file {path}:{key}): nested more than {LEVELS_MAX} levels deep; "
                f"allowed: {allowed_values(key)}"
            )
        elif key in Settings.model_fields:
            settings[key] = GivenValue(value, f"file {path}:{key}")
        else:
            problems.append(
                f"{key} (file {path}:{key}): no such setting; {_suggest_names(key, Settings.model_fields)}"
            )
    return settings


def _is_too_deep(value: object) -> bool:
    """Whether a value has too many levels to be checked and shown."""
    containers = [value] if isinstance(value, (dict, list)) else []
    for _ in range(LEVELS_MAX):
        containers = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, (dict, list))
        ]
    return bool(containers)


def _check_first_user(given: Mapping[str, GivenValue], problems: list[str]) -> None:
    """Refuse a first user other than `guest` without a configured password: the default is well known."""
    user = given.get("default_user")
    if user is not None and user.value != "guest" and "default_pass" not in given:
        problems.append(
            f"default_user = {user.value!r} ({user.source}): its password is missing; "
            f"set default_pass by {flag('default_pass')}, {variable('default_pass')} or in the file"
        )


def _check_tls(given: Mapping[str, GivenValue], problems: list[str]) -> None:
    """Refuse TLS settings that need another setting, and TLS settings without effect."""
    served = ["tls_listen", "websocket_tls_listen"]
    by_certificate = served + ([] if _is_set(given, "admin_tls_certificate") else ["admin_tls_listen"])
    by_ca = ["tls_verify"] + ([] if _is_set(given, "admin_tls_ca") else ["admin_tls_verify"])
    needs = (
        ("tls_listen", ["tls_certificate"]),
        ("websocket_tls_listen", ["tls_certificate"]),
        ("admin_tls_listen", ["admin_tls_certificate", "tls_certificate"]),
        ("tls_verify", ["tls_ca"]),
        ("admin_tls_verify", ["admin_tls_ca", "tls_ca"]),
        ("tls_ca", by_ca),
        ("admin_tls_ca", ["admin_tls_verify"]),
        ("tls_key", ["tls_certificate"]),
        ("admin_tls_key", ["admin_tls_certificate"]),
        ("tls_certificate", by_certificate),
        ("admin_tls_certificate", ["admin_tls_listen"]),
        ("tls_verify", served),
        ("admin_tls_verify", ["admin_tls_listen"]),
    )
    for name, needed in needs:
        if _is_set(given, name) and not any(_is_set(given, other) for other in needed):
            item, other = given[name], needed[0]
            problems.append(
                f"{name} = {_show_value(item.value)} ({item.source}): {other} is missing; "
                f"set it by {flag(other)}, {variable(other)} or in the file"
            )


def _is_set(given: Mapping[str, GivenValue], name: str) -> bool:
    """Whether a setting has a value other than the word for none."""
    if name not in given:
        return False
    value = given[name].value
    return value not in ([], ()) and not is_off(value) and not is_none(value)


def _describe(detail: ErrorDetails, given: Mapping[str, GivenValue]) -> str:
    name = str(detail["loc"][0])
    item = given[name]
    shown = "(not shown)" if is_secret(name) else _show_value(item.value)
    reason = ""
    if detail["type"] == "value_error":
        reason = f"{detail['ctx']['error']}; "
    return f"{name} = {shown} ({item.source}): {reason}allowed: {allowed_values(name)}"


def _show_value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show_value(item) for item in value) + "]"
    return "(not shown)" if isinstance(value, SecretStr) else repr(value)


def _suggest_names(key: str, names: Iterable[str]) -> str:
    """Name the settings with the closest names, or all settings if no name is close."""
    known = {name.removeprefix(PREFIX): name for name in sorted(names)}
    close = [known[name] for name in difflib.get_close_matches(key.removeprefix(PREFIX), known, n=2)]
    if close:
        return "did you mean " + " or ".join(close) + "?"
    return "allowed: " + ", ".join(known.values())
