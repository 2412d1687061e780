"""The stub of the providers' REST interfaces, by plain HTTP, and its hook in a separate process."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RequestTimeoutError
from rtvi_sync.testing import HangUp, ProviderAPI
from tests.support.slowness import GUARD

TWILIO = "/2010-04-01/Accounts/AC1/Calls/CA1.json"
TELNYX = "/v2/calls/v3%3Aid/actions/hangup"
PLIVO = "/v1/Account/MA1/Call/id-1/"


def request(api: ProviderAPI, method: str, path: str, body: str = "") -> tuple[int, bytes]:
    """Return status and body of the answer to a request with a key."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(api.url).netloc, timeout=GUARD)
    try:
        connection.request(method, path, body.encode(), {"Authorization": "Basic c2VjcmV0"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_hang_ups_are_kept() -> None:
    """The request of each provider is recognised, answered as the provider would, and returned once by the wait."""
    began = time.monotonic()
    with ProviderAPI() as api:
        answers = [
            request(api, "POST", TWILIO, "Status=completed"),
            request(api, "POST", TELNYX),
            request(api, "DELETE", PLIVO),
        ]
        assert [status for status, _ in answers] == [200, 200, 204]
        assert json.loads(answers[0][1]) == {"status": "completed"}
        assert answers[2][1] == b""
        waited = [api.wait_for_hang_up() for _ in range(3)]
        with pytest.raises(RequestTimeoutError, match="No bot asked"):
            api.wait_for_hang_up(timeout=0)
    assert waited == api.hang_ups
    found = [(each.provider, each.call_id, each.account) for each in waited]
    assert found == [("twilio", "CA1", "AC1"), ("telnyx", "v3:id", None), ("plivo", "id-1", "MA1")]
    assert sorted([began, time.monotonic(), *(each.at for each in waited)])[1:-1] == [each.at for each in waited]
    assert "c2VjcmV0" not in repr([vars_of(each) for each in waited])


def vars_of(hang_up: HangUp) -> dict[str, Any]:
    return {name: getattr(hang_up, name) for name in ("provider", "call_id", "account", "at")}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", TWILIO, ""),
        ("POST", TWILIO, "Status=busy"),
        ("POST", TWILIO, "Twiml=%3CResponse%2F%3E"),
        ("GET", TWILIO, "Status=completed"),
        ("DELETE", TELNYX, ""),
        ("POST", PLIVO, ""),
        ("POST", "/v2/calls/a/b/actions/hangup", ""),
        ("POST", "/", ""),
    ],
)
def test_other_requests(method: str, path: str, body: str) -> None:
    """A request that ends no call is not found, and not kept."""
    with ProviderAPI() as api:
        assert request(api, method, path, body)[0] == 404
        assert api.hang_ups == []


def test_a_call_that_is_not_found() -> None:
    """The answer may be 404, as for a call that has ended; the request is kept."""
    with ProviderAPI(answer=404) as api:
        assert request(api, "POST", TWILIO, "Status=completed")[0] == 404
        assert len(api.hang_ups) == 1


def test_no_answer() -> None:
    """With "never" the request waits, until the server stops."""
    api = ProviderAPI(answer="never")
    api.start()
    host = urllib.parse.urlsplit(api.url).netloc
    connection = http.client.HTTPConnection(host, timeout=GUARD)
    connection.request("DELETE", PLIVO)
    assert api.wait_for_hang_up().provider == "plivo"
    api.stop()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        connection.getresponse()
    connection.close()


def test_start_and_stop() -> None:
    """The server runs once at a time, and again after a stop; before its start it has no URL and no hook."""
    api = ProviderAPI()
    for _ in range(2):
        assert api.url == ""
        with pytest.raises(RuntimeError, match="before start"):
            _ = api.hook
        with api:
            assert api.url in api.hook
            with pytest.raises(RuntimeError, match="already running"):
                api.start()
    api.stop()


def test_the_hook_in_another_program(tmp_path: Path) -> None:
    """A program without aiohttp starts as before. With it: tests/pipecat/test_phone.py."""
    with ProviderAPI() as api:
        (tmp_path / "sitecustomize.py").write_text(api.hook)
    (tmp_path / "aiohttp.py").write_text("raise ImportError('not installed')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "import sitecustomize; print(sitecustomize.__doc__)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=4 * GUARD, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Twilio" in done.stdout
