"""rabbitmq-c's command line tools, as a shell script uses them; Debian's package amqp-tools."""

import os
import shutil
import subprocess

import pytest

from tests.support.daemon.daemon import PATIENCE_S, Address

TOOLS = ("amqp-declare-queue", "amqp-publish", "amqp-get", "amqp-consume", "amqp-delete-queue")


class Tools:
    """The tools, with the address of the broker."""

    def __init__(self, address: Address) -> None:
        self._url = address.url()

    def run(self, tool: str, *arguments: str, given: str = "", status: int = 0) -> str:
        """Run a tool with `given` as standard input; return its output. It must exit with `status`."""
        done = subprocess.run(
            [tool, f"--url={self._url}", *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == status, f"{tool}: exit {done.returncode}\n{done.stderr}"
        return done.stdout if status == 0 else done.stderr


@pytest.fixture
def tools(address: Address) -> Tools:
    """The tools, if they are installed."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        assert os.environ.get("CI") != "true", f"missing: {absent}"
        pytest.skip(f"missing: {', '.join(absent)}")
    return Tools(address)


@pytest.mark.nightly
def test_a_script_publishes_and_consumes_messages(tools: Tools, name: str) -> None:
    declared = tools.run("amqp-declare-queue", "-d", "-q", name)
    tools.run("amqp-publish", "-r", name, "-p", "-l", given="first\nsecond\nthird\n")
    got = tools.run("amqp-get", "-q", name)
    consumed = tools.run("amqp-consume", "-q", name, "-c", "2", "-p", "1", "cat")
    tools.run("amqp-get", "-q", name, status=2)  # empty
    deleted = tools.run("amqp-delete-queue", "-q", name)

    assert (declared, got, consumed, deleted) == (f"{name}\n", "first\n", "second\nthird\n", "0\n")


@pytest.mark.nightly
def test_a_script_moves_three_mebibytes(tools: Tools, name: str) -> None:
    tools.run("amqp-declare-queue", "-q", name)
    large = "x" * (3 << 20)
    tools.run("amqp-publish", "-r", name, "-H", "kind: large", "-C", "text/plain", given=large)

    assert tools.run("amqp-consume", "-q", name, "-c", "1", "cat") == large
    tools.run("amqp-delete-queue", "-q", name)


@pytest.mark.nightly
def test_a_script_names_the_missing_requirement(tools: Tools, name: str) -> None:
    done = tools.run("amqp-get", "-q", name, status=1)

    assert f"404, message: NOT_FOUND - no queue '{name}' in vhost '/'" in done
