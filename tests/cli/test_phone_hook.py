"""`rtvi-sync phone-hook`: the hook for a bot's process."""

from __future__ import annotations

import pytest

from rtvi_sync.cli import main
from rtvi_sync.testing import ProviderAPI


def test_it_prints_the_hook(capsys: pytest.CaptureFixture[str]) -> None:
    """Only the text of `ProviderAPI.hook` is printed; a slash at the end of the URL is no path."""
    with ProviderAPI() as api:
        for url in (api.url, f"{api.url}/"):
            assert main(["phone-hook", url]) == 0
            assert capsys.readouterr() == (api.hook, "")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9000", "https://127.0.0.1:9000", "http://127.0.0.1:9000/v1", "http://me:key@127.0.0.1"]
)
def test_a_url_that_is_no_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An argument that is no address of a plain HTTP server gives the status 2, and is not shown."""
    with pytest.raises(SystemExit) as exit_:
        main(["phone-hook", url])
    assert exit_.value.code == 2
    shown = capsys.readouterr().err
    assert "error: argument URL: " in shown
    assert "key" not in shown
