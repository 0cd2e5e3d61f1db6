"""The container image has defaults that a mounted settings file replaces."""

import re
from pathlib import Path

from broker.net.http_calls import EXTRA
from config.loader import load, variable
from config.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
DEFAULTS = ROOT / "docker" / "defaults.toml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def variables() -> dict[str, str]:
    """Return the broker's variables that the image sets."""
    instructions = DOCKERFILE.replace("\\\n", " ").splitlines()
    settings = " ".join(line for line in instructions if line.startswith("ENV "))
    return dict(re.findall(r"(AMQPD_\w+)=(\S+)", settings))


def test_the_image_sets_no_setting_by_a_variable() -> None:
    """A variable wins over the settings file of an operator."""
    assert not variables().keys() & {variable(name) for name in (*Settings.model_fields, "config")}


def test_the_image_has_the_defaults_file_that_its_variable_names() -> None:
    (copied,) = re.findall(r"^COPY docker/\S+ docker/defaults.toml (/\S+/)$", DOCKERFILE, re.MULTILINE)
    assert variables() == {"AMQPD_CONFIG_DEFAULTS": f"{copied}defaults.toml"}
    assert "!docker/defaults.toml" in (ROOT / ".dockerignore").read_text().splitlines()


def test_dispatchers_of_the_image_can_call_urls() -> None:
    """No operator can install an extra into the image later."""
    (installed,) = re.findall(r"pip install [^\n]*(\[\w+\])\"", DOCKERFILE)
    assert installed == f"[{EXTRA}]"


def test_a_mounted_settings_file_wins_over_the_defaults_of_the_image(tmp_path: Path) -> None:
    environ = {"AMQPD_CONFIG_DEFAULTS": str(DEFAULTS)}
    settings = load({}, environ).settings
    assert [str(place) for place in settings.listen] == ["0.0.0.0:5672"]
    assert (str(settings.admin), str(settings.data_dir)) == ("0.0.0.0:15672", "/var/lib/amqpd")
    assert f"VOLUME {settings.data_dir}\n" in DOCKERFILE
    file = tmp_path / "amqpd.toml"
    file.write_text('admin = "127.0.0.1:15672"\n')
    mounted = load({"config": str(file)}, environ).settings
    assert (str(mounted.admin), mounted.listen) == ("127.0.0.1:15672", settings.listen)
