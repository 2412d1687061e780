"""Parameters of a client's requests, and the URLs made of them."""

from __future__ import annotations

import pytest

from rtvi_sync import (
    Endpoints,
    RTVIClient,
    RTVIClientParams,
    RTVIError,
)


class TestParams:
    def test_defaults(self) -> None:
        """A client without params has the default endpoints and nothing else."""
        params = RTVIClient().params
        assert isinstance(params, RTVIClientParams)
        assert (params.base_url, params.request_data, params.headers, params.config, params.services) == (None,) * 5
        assert (params.endpoints.connect, params.endpoints.action) == ("connect/", "action/")

    def test_mutable(self) -> None:
        """Every part may be changed at any time; a mapping of endpoints is converted."""
        client = RTVIClient(params={"base_url": "http://a"})
        client.params.base_url = "http://b"
        client.params.endpoints = {"connect": "start"}  # type: ignore[assignment]
        assert client.construct_url("connect") == "http://b/start"
        assert client.params.endpoints == Endpoints(connect="start", action="action/")

    def test_copied(self) -> None:
        """A list or mapping is copied, so that later changes by the application do not reach the client."""
        config, data, headers, services = [{"service": "llm", "options": []}], {"a": 1}, {"X-A": "1"}, {"llm": "a"}
        client = RTVIClient(params={"config": config, "request_data": data, "headers": headers, "services": services})
        client.params.services = services
        for each in (config, data, headers, services):
            each.clear()
        params = client.params
        assert params.config == [{"service": "llm", "options": []}]
        assert (params.request_data, params.headers, params.services) == ({"a": 1}, {"X-A": "1"}, {"llm": "a"})
        client.params.config = more = [{"service": "tts", "options": []}]
        more.clear()
        assert client.params.config == [{"service": "tts", "options": []}]

    def test_replaceable(self) -> None:
        """The whole may be replaced by a mapping or an object."""
        client = RTVIClient()
        client.params = {"baseUrl": "http://a"}
        assert client.params.base_url == "http://a"
        mine = RTVIClientParams(base_url="http://b")
        client.params = mine
        assert client.params is mine

    def test_unknown_keys(self) -> None:
        """A misspelt key is told at once, in endpoints too."""
        with pytest.raises(TypeError, match="base_uri"):
            RTVIClient(params={"base_uri": "http://x"})
        with pytest.raises(TypeError, match="conect"):
            RTVIClient(params={"endpoints": {"conect": "x"}})


class TestConstructURL:
    @pytest.mark.parametrize(
        ("base", "endpoint", "url"),
        [
            ("https://api.example/v1", "connect/", "https://api.example/v1/connect/"),
            ("https://api.example/v1/", "connect/", "https://api.example/v1/connect/"),
            ("https://api.example/v1/", "/connect", "https://api.example/v1/connect"),
            ("https://api.example/v1", "/connect", "https://api.example/v1/connect"),
            ("https://api.example/v1//", "//connect", "https://api.example/v1/connect"),
            ("https://api.example", "connect", "https://api.example/connect"),
            ("https://api.example:8443/", "a/b/connect", "https://api.example:8443/a/b/connect"),
            ("https://api.example/v1?key=a%20b", "connect", "https://api.example/v1/connect?key=a%20b"),
            ("https://api.example?key=1", "connect", "https://api.example/connect?key=1"),
            ("https://api.example/?key=1", "connect?x=2", "https://api.example/connect?key=1&x=2"),
            ("https://api.example/v1", "connect?x=2", "https://api.example/v1/connect?x=2"),
            ("https://api.example/v1#top", "connect", "https://api.example/v1/connect"),
            ("http://[::1]:7860", "connect", "http://[::1]:7860/connect"),
        ],
    )
    def test_joining(self, base: str, endpoint: str, url: str) -> None:
        """Base and endpoint are joined with exactly one slash, and a query of the base is kept."""
        client = RTVIClient(params={"base_url": base, "endpoints": {"connect": endpoint}})
        assert client.construct_url("connect") == url

    def test_action_and_paths(self) -> None:
        """The action endpoint, and any path."""
        client = RTVIClient(params={"base_url": "https://api.example/v1"})
        assert client.construct_url("action") == "https://api.example/v1/action/"
        assert client.construct_url("files/upload") == "https://api.example/v1/files/upload"

    @pytest.mark.parametrize("base", [None, ""])
    def test_without_base_url(self, base: str | None) -> None:
        """Without a base URL, construct_url() raises an error that names `client.params.base_url`."""
        with pytest.raises(RTVIError, match=r"client\.params\.base_url"):
            RTVIClient(params={"base_url": base}).construct_url("connect")

    def test_without_the_endpoint(self) -> None:
        """An endpoint that is None has no URL."""
        client = RTVIClient(params={"base_url": "http://x", "endpoints": {"action": None}})
        with pytest.raises(RTVIError, match=r"endpoints\.action is None"):
            client.construct_url("action")
