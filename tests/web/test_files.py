"""The files of a page that talks."""

from __future__ import annotations

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.flask import RTVIBlueprint
from tests.flask.browser import User, site_of


@pytest.mark.parametrize("name", ["rtvi-voice.js", "rtvi-voice-worklet.js"])
def test_the_files_of_the_page(name: str) -> None:
    """Each file is served with `voice=True` only, and a browser's copy is confirmed by 304."""
    user = User(site_of(RTVIBlueprint(lambda _: RTVIClient(), voice=True)))
    file = user.http.get(f"/bot/{name}")
    assert (file.status_code, file.content_type) == (200, "text/javascript; charset=utf-8")
    assert (file.headers["Cache-Control"], file.headers["X-Content-Type-Options"]) == ("no-cache", "nosniff")
    again = user.http.get(f"/bot/{name}", headers={"If-None-Match": file.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    mute = User(site_of(RTVIBlueprint(lambda _: RTVIClient())))
    assert [mute.http.get(f"/bot/{route}").status_code for route in (name, "voice")] == [404, 404]
