"""Requests generated from the HTTP API's own description cause no internal error."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok

from tests.support.daemon.daemon import PATIENCE_S, DaemonStarter

EXAMPLES = 25

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore"),  # warnings of the tool about itself
]


def test_no_request_is_answered_with_a_server_error(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    schema = schemathesis.openapi.from_url(f"{daemon.admin}/api/openapi.json", timeout=PATIENCE_S)
    asked, statuses = 0, set[int]()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            answer = case.call(auth=("guest", "guest"), timeout=PATIENCE_S)
            statuses.add(answer.status_code)
            assert answer.status_code < 500 or answer.status_code == 503, (
                case.as_curl_command(),
                answer.text,
            )
            if 400 <= answer.status_code < 500:
                assert set(answer.json()) == {"error", "reason"}, answer.text

        ask()
        asked += 1
    assert asked > 80
    assert {200, 201, 204, 400, 404} <= statuses, "the requests get somewhere"
    daemon.stop()
