"""The golden list of reply texts that are RabbitMQ's word for word, and the comparison with an answer."""

import json
import uuid
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).parents[1] / "golden" / "reply_texts.json"

Answer = dict[str, object]
"""The code, condition or status of a refusal, and its text."""


def listed(protocol: str) -> dict[str, Answer]:
    """Return the listed answers of `amqp-0-9-1`, `amqp-1.0` or `http`, by the name of the case."""
    answers: dict[str, Answer] = json.loads(LIST.read_text())[protocol]
    return answers


def unused_name() -> str:
    """Return a name for queues, exchanges, virtual hosts and users that nothing else has; 14 characters."""
    return f"texts.{uuid.uuid4().hex[:8]}"


def check(answer: Answer, golden: Answer, name: str) -> None:
    """Fail unless `answer` equals the listed answer, in which `{name}` means `name`.

    A listed `begins` is compared with the start of the text only: the rest of the text is our own.
    """
    expected = {
        key: value.replace("{name}", name) if isinstance(value, str) else value
        for key, value in golden.items()
    }
    if "begins" in expected:
        beginning = str(expected.pop("begins"))
        expected["text"] = beginning + str(answer["text"])[len(beginning) :]
    assert answer == expected, f"{answer} instead of {expected}"
