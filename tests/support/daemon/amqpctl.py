"""The command `amqpctl` as a user runs it."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.support.daemon.daemon import ROOT

PROGRAM = "from broker.__main__ import control; control()"


class Amqpctl:
    """Runs the command as a user would."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(
        self,
        *arguments: str,
        status: int = 0,
        stdin: str = "",
        user: str = "guest",
        password: str | None = None,
        form: str = "table",
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        environment = {"AMQPCTL_URL": self.url, "AMQPCTL_USER": user, "PATH": "/usr/bin:/bin"}
        environment |= more or {}
        if password is not None:
            environment["AMQPCTL_PASSWORD"] = password
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "--format", form, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            check=False,
        )
        assert done.returncode == status, (done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str) -> Any:
        """Return the JSON output of a list command."""
        return json.loads(self(*arguments, form="json").stdout)

    def fact(self, command: str, fact: str) -> str:
        """Return a fact that a command prints in a table of facts."""
        for line in self(command).stdout.splitlines():
            name, _, value = line.partition(" ")
            if name == fact:
                return value.strip()
        raise AssertionError(f"{command} shows no {fact}")
