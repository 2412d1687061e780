"""TLS as a program meets it: the servers it accepts, the ones it refuses, and the errors."""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import logging
import os
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from rtvi_sync import (
    InvalidTransportParamsError,
    ReconnectPolicy,
    RTVIClient,
    RTVIError,
    StartBotError,
    TransportStartError,
    WebSocketTransport,
    is_transient,
)
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.loopback import Proxy, Server, authority, serving, trusting
from tests.support.probes import default_tls_context, forget_default_tls_context
from tests.support.slowness import GUARD

NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)


def quiet_client(transport: WebSocketTransport, **options: Any) -> RTVIClient:
    """Return a client without devices."""
    return RTVIClient(transport=transport, enable_mic=False, speaker=NullSink(), connect_timeout=GUARD, **options)


def server_context(**certificate: Any) -> ssl.SSLContext:
    """Return a server's context with a certificate for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("127.0.0.1", **certificate).configure_cert(context)
    return context


def self_signed() -> ssl.SSLContext:
    """Return a server's context with a certificate that vouches for itself."""
    alone = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with alone.cert_pem.tempfile() as certificate, alone.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)
    return context


def of_old() -> ssl.SSLContext:
    """Return a server's context that speaks TLS 1.0 and 1.1 only."""
    context = server_context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def asking_for_certificates(version: ssl.TLSVersion) -> ssl.SSLContext:
    """Return a server's context that lets in only clients with a certificate of `authority()`."""
    context = server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = version
    authority().configure_trust(context)
    return context


def with_certificate(ca: trustme.CA) -> ssl.SSLContext:
    """Return a client's context with a certificate of `ca`."""
    context = trusting()
    ca.issue_cert("client@example.test").configure_cert(context)
    return context


# -- how a program may reach a server with TLS ------------------------------------------------------------------------

Reach = Callable[[str, ssl.SSLContext, "str | bool"], None]


def by_connect_request(where: str, context: ssl.SSLContext, proxy: str | bool) -> None:
    """Ask a connect endpoint."""
    client = quiet_client(
        WebSocketTransport(), params={"base_url": f"https://{where}"}, ssl_context=context, proxy=proxy
    )
    with pytest.raises(StartBotError) as caught:
        client.connect()
    raise caught.value


def by_http_client(where: str, context: ssl.SSLContext, proxy: str | bool) -> None:
    """Ask a connect endpoint with an HTTP client of the program's own."""
    with httpx.Client(verify=context, proxy=f"http://{proxy}" if proxy else None) as http_client:
        client = quiet_client(WebSocketTransport(), params={"base_url": f"https://{where}"}, http_client=http_client)
        with pytest.raises(StartBotError) as caught:
            client.connect()
    raise caught.value


def by_websocket(where: str, context: ssl.SSLContext, proxy: str | bool) -> None:
    """Open a WebSocket."""
    client = quiet_client(WebSocketTransport(f"wss://{where}/"), ssl_context=context, proxy=proxy)
    with pytest.raises(TransportStartError) as caught:
        client.connect()
    raise caught.value


@contextlib.contextmanager
def a_proxy(wanted: bool) -> Iterator[str | bool]:
    """Yield the address of a proxy that tunnels, or False."""
    if not wanted:
        yield False
        return
    with Proxy() as proxy:
        yield proxy.authority
    assert len(proxy.heads) == 1
    assert proxy.heads[0].startswith("CONNECT ")


every_way = pytest.mark.parametrize("reach", [by_connect_request, by_http_client, by_websocket])
with_and_without_proxy = pytest.mark.parametrize("proxied", [False, True], ids=["direct", "proxy"])


def complaint(reach: Reach, tls: ssl.SSLContext, context: ssl.SSLContext, *, proxied: bool = False) -> str:
    """Return the error for a server with this TLS, which must be refused before a request is sent."""
    heard: list[str] = []
    with (
        Server(lambda peer: heard.append(peer.read_head()), tls=tls) as server,
        a_proxy(proxied) as proxy,
        pytest.raises(RTVIError) as caught,
    ):
        reach(server.authority, context, proxy)
    assert heard == []
    text = str(caught.value)
    assert server.authority in text
    # Nothing that would get better by itself: with a reconnect policy it is not tried again.
    assert not is_transient(caught.value) or "not trusted" not in text
    # No way out of the trouble is one that lets others in.
    for word in ("CERT_NONE", "verify=False", "check_hostname", "unverified", "disable", "ws://127", "http://"):
        assert word not in text
    return text


# -- who is not let in ------------------------------------------------------------------------------------------------

CERTIFICATES: dict[str, tuple[Callable[[], ssl.SSLContext], tuple[str, ...]]] = {
    "expired": (
        functools.partial(server_context, not_before=NOW - 2 * DAY, not_after=NOW - DAY),
        ("certificate has expired", "needs a new one"),
    ),
    "not yet valid": (
        functools.partial(server_context, not_before=NOW + DAY, not_after=NOW + 2 * DAY),
        ("not yet valid", "clock"),
    ),
    "another host's": (
        functools.partial(serving, "elsewhere.test", "127.0.0.2"),
        ("not valid for '127.0.0.1'", "name that the certificate has"),
    ),
    "self-signed": (self_signed, ("self-signed", "ssl.create_default_context(cafile=...)")),
    "of an unknown authority": (
        lambda: serving(ca=trustme.CA()),
        ("issuer", "ssl.create_default_context(cafile=...)"),
    ),
}


@every_way
@with_and_without_proxy
@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_a_certificate_that_is_not_to_be_trusted(reach: Reach, proxied: bool, certificate: str) -> None:
    """An untrusted certificate is refused before the request is sent; the error says why, and how to fix it."""
    make, words = CERTIFICATES[certificate]
    text = complaint(reach, make(), trusting(), proxied=proxied)
    assert "certificate is not trusted" in text
    for word in words:
        assert word in text


@every_way
def test_a_context_is_where_the_message_says(reach: Reach) -> None:
    """The advice for applications with their own HTTP client is to change that, for others to pass `ssl_context`."""
    text = complaint(reach, self_signed(), trusting())
    assert ("http_client with verify=" in text) is (reach is by_http_client)
    assert ("pass ssl_context=" in text) is (reach is not by_http_client)


@every_way
def test_old_versions_of_tls(reach: Reach) -> None:
    """A server that knows only TLS 1.0 and 1.1 is refused, and the error says so."""
    assert "speaks no version of TLS" in complaint(reach, of_old(), trusting())


@pytest.mark.parametrize("reach", [by_connect_request, by_websocket])
def test_without_a_context_the_usual_authorities_count(reach: Reach) -> None:
    """Verification is on by default, at TLS 1.2 or later: an unknown authority is refused."""
    context = default_tls_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert "not trusted" in complaint(reach, serving(), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("variable", "argument"), [("SSL_CERT_FILE", "cafile"), ("SSL_CERT_DIR", "capath")])
def test_the_environment_names_the_usual_authorities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, argument: str
) -> None:
    """Where a variable that OpenSSL knows names a file or a folder, its authorities count in place of certifi's."""
    place = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(place)
    place = place if variable == "SSL_CERT_FILE" else tmp_path
    monkeypatch.setenv(variable, str(place))
    asked: list[dict[str, object]] = []
    make = ssl.create_default_context

    def record(**given: Any) -> ssl.SSLContext:
        asked.append(given)
        return make(**given)

    monkeypatch.setattr(ssl, "create_default_context", record)
    context = default_tls_context()
    assert {name: value for name, value in asked[0].items() if value is not None} == {argument: str(place)}
    assert context.verify_mode is ssl.CERT_REQUIRED
    if argument == "cafile":
        assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("variable", "place", "why"),
    [
        ("SSL_CERT_FILE", "none.pem", "No such file or directory"),
        ("SSL_CERT_FILE", "empty.pem", "no certificate or crl found"),
        ("SSL_CERT_FILE", "", "Is a directory"),
        ("SSL_CERT_DIR", "none", "there is no such directory"),
        ("SSL_CERT_DIR", "empty.pem", "there is no such directory"),
    ],
)
@pytest.mark.parametrize("by_request", [False, True])
def test_a_wrong_variable_is_no_fault_of_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, place: str, why: str, by_request: bool
) -> None:
    """An environment that names no usable authorities raises at once, without another attempt."""
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv(variable, str(tmp_path / place))
    forget_default_tls_context()
    with Server(lambda peer: peer.wait_for_end(), tls=serving()) as server:
        transport = WebSocketTransport(None if by_request else f"wss://{server.authority}/")
        params = {"base_url": f"https://{server.authority}"} if by_request else {}
        again = ReconnectPolicy(first_connect=True, max_attempts=1)
        client = quiet_client(transport, params=params, proxy=False, reconnect=again)
        with pytest.raises(InvalidTransportParamsError) as caught:
            client.connect()
        client.close()
    assert f"{variable} ({tmp_path / place}) cannot be used: " in str(caught.value)
    assert why in str(caught.value)
    assert not is_transient(caught.value)
    assert server.connections <= 1


def test_one_folder_of_several_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SSL_CERT_DIR may name several folders, as for OpenSSL, which passes over those that are not there."""
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path / 'none'}{os.pathsep}{tmp_path}")
    assert default_tls_context().verify_mode is ssl.CERT_REQUIRED


def test_a_folder_that_is_missing_beside_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Scripts set both variables; the file is enough."""
    authority().cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    assert len(default_tls_context().get_ca_certs()) == 1


def test_a_shortage_of_descriptors_is_not_blamed_on_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that cannot be opened because too many are open is not wrong: the error passes through, with advice."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path))

    def fail(**_: Any) -> ssl.SSLContext:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(ssl, "create_default_context", fail)
    with pytest.raises(OSError, match="Too many open files"):
        default_tls_context()


# -- who is -----------------------------------------------------------------------------------------------------------


@with_and_without_proxy
def test_an_authority_of_ones_own(proxied: bool) -> None:
    """With its certificate in `ssl_context`, the connect request and the session go over TLS, through a proxy too."""
    with EmbeddedBot(ssl_context=serving()) as bot:
        with Proxy() as proxy:
            params = {"base_url": bot.base_url}
            where = f"http://{proxy.authority}" if proxied else False
            with quiet_client(WebSocketTransport(), params=params, ssl_context=trusting(), proxy=where) as client:
                assert client.send_client_request("echo", "hello") == "hello"
        assert [head.split(" ")[0] for head in proxy.heads] == ["CONNECT", "CONNECT"] * proxied


def test_the_name_is_sent_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends the server's name, for servers that share an address, and checks it against the certificate."""
    asked: list[str | None] = []
    outer = serving("nobody.example")

    def choose(line: ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        asked.append(name)
        line.context = serving(name or "nobody.example")

    outer.sni_callback = choose  # type: ignore[assignment]
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **more: look_up("127.0.0.1", *rest, **more))
    with EmbeddedBot(ssl_context=outer) as bot:
        port = bot.ws_url.rpartition(":")[2].partition("/")[0]
        base_url = bot.base_url.replace("127.0.0.1", "api.example")
        transport = WebSocketTransport(f"wss://media.example:{port}")
        with quiet_client(transport, params={"base_url": base_url}, ssl_context=trusting()) as client:
            assert client.connected
        outer.sni_callback = None  # now the server has no trusted certificate for any name
        with pytest.raises(TransportStartError, match=r"not valid for 'media\.example'"):
            quiet_client(WebSocketTransport(f"wss://media.example:{port}"), ssl_context=trusting()).connect()
    assert asked == ["api.example", "media.example"]


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)


@each_version
def test_a_certificate_of_the_client(version: ssl.TLSVersion) -> None:
    """A client certificate of the context is shown to the connect endpoint and to the bot."""
    with EmbeddedBot(ssl_context=asking_for_certificates(version)) as bot:
        context = with_certificate(authority())
        with quiet_client(WebSocketTransport(), params={"base_url": bot.base_url}, ssl_context=context) as client:
            assert client.connected


@every_way
@each_version
@pytest.mark.parametrize("has_one", [False, True], ids=["none", "a stranger's"])
def test_a_missing_certificate_of_the_client(reach: Reach, version: ssl.TLSVersion, has_one: bool) -> None:
    """The message says where a certificate of the client goes."""
    context = with_certificate(trustme.CA()) if has_one else trusting()
    text = complaint(reach, asking_for_certificates(version), context)
    assert "refused TLS with this client" in text
    assert "load_cert_chain" in text


# -- the caller's own doing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unchecked", ["certificate", "name"])
def test_a_context_that_does_not_verify_is_worth_one_warning(unchecked: str, caplog: pytest.LogCaptureFixture) -> None:
    """An application that turns verification off in its own context gets that, and one warning in the log."""
    caplog.set_level(logging.DEBUG)
    context = trusting()
    context.check_hostname = False
    if unchecked == "certificate":
        context.verify_mode = ssl.CERT_NONE
    with EmbeddedBot(ssl_context=serving("elsewhere.test")) as bot:
        client = quiet_client(WebSocketTransport(), params={"base_url": bot.base_url}, ssl_context=context)
        for _ in range(2):
            client.connect()
            client.disconnect()
    warned = [record.getMessage() for record in caplog.records if "does not verify" in record.message]
    assert len(warned) == 1
    assert "cafile=" in warned[0]


def test_a_context_that_verifies_is_worth_none(caplog: pytest.LogCaptureFixture) -> None:
    """A context that verifies causes no warning, and a missing one causes none either."""
    quiet_client(WebSocketTransport(), ssl_context=trusting())
    quiet_client(WebSocketTransport())
    assert caplog.records == []
