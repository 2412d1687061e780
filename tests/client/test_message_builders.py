"""Messages to the bot: files, keys, context and user interface, as each generation takes them."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    MemoryTransport,
    MessageTooLargeError,
    RTVIClient,
    RTVIMessage,
    TransportState,
    UnsupportedFeatureError,
)
from rtvi_sync.client.message_builders import cancel_message, dtmf_messages
from tests.support.clients import memory_client, transport_of

pytestmark = pytest.mark.inside


def bot_of(version: str) -> Callable[[MemoryTransport, RTVIMessage], Any]:
    """Yield a bot that speaks `version`, and says nothing else."""

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Any:
        if message.type == "client-ready":
            yield RTVIMessage("bot-ready", {"version": version, "config": []}, message.id)

    return bot


def sent(client: RTVIClient) -> list[tuple[str, Any]]:
    """Type and data of the messages that the client has sent after client-ready."""
    return [(message.type, message.data) for message in transport_of(client).sent[1:]]


def file_sent(client: RTVIClient) -> dict[str, Any]:
    """Return the file of the only message."""
    ((type_, data),) = sent(client)
    assert type_ == "send-file"
    return dict(data["file"])


def content_of(file: dict[str, Any]) -> bytes:
    assert file["source"]["type"] == "bytes"
    return base64.b64decode(file["source"]["bytes"], validate=True)


class TestFiles:
    def test_the_message(self, client: RTVIClient) -> None:
        """The whole of it, with the defaults."""
        client.send_file(b"hello")
        assert sent(client) == [
            (
                "send-file",
                {
                    "content": "",
                    "file": {
                        "format": "application/octet-stream",
                        "source": {"type": "bytes", "bytes": "aGVsbG8="},
                    },
                    "options": {"run_immediately": True, "audio_response": True},
                },
            )
        ]

    def test_options(self, client: RTVIClient) -> None:
        """The options of a file are sent with it."""
        client.send_file(b"x", "look", False, False, custom_options={"detail": "low"})
        ((_, data),) = sent(client)
        assert data["content"] == "look"
        assert data["options"] == {
            "run_immediately": False,
            "audio_response": False,
            "custom_options": {"detail": "low"},
        }

    @pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
    def test_bytes(self, client: RTVIClient, make: Callable[[bytes], Any]) -> None:
        """Content of any kind; it has a name only if it is given one, which then tells the format."""
        client.send_file(make(bytes(range(256))), name="cat.png")
        file = file_sent(client)
        assert content_of(file) == bytes(range(256))
        assert (file["format"], file["name"]) == ("image/png", "cat.png")

    @pytest.mark.parametrize("as_what", [str, Path, os.fspath])
    def test_paths(self, client: RTVIClient, tmp_path: Path, as_what: Callable[[Path], Any]) -> None:
        """A file is read; its path gives name and format."""
        path = tmp_path / "a note.txt"
        path.write_bytes(b"hello")
        client.send_file(as_what(path))
        file = file_sent(client)
        assert (content_of(file), file["format"], file["name"]) == (b"hello", "text/plain", "a note.txt")

    def test_a_relative_path(self, client: RTVIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A relative path is relative to this process's working directory."""
        monkeypatch.chdir(tmp_path)
        Path("note.json").write_bytes(b"{}")
        client.send_file("note.json")
        assert file_sent(client)["format"] == "application/json"

    @pytest.mark.parametrize(
        ("name", "format"),
        [
            ("cat.jpg", "image/jpeg"),
            ("cat.PNG", "image/png"),
            ("a.pdf", "application/pdf"),
            ("a.csv", "text/csv"),
            ("a.nosuchformat", "application/octet-stream"),
            ("noformat", "application/octet-stream"),
        ],
    )
    def test_formats(self, client: RTVIClient, tmp_path: Path, name: str, format: str) -> None:
        """A file's format is guessed from its name."""
        (tmp_path / name).write_bytes(b"x")
        client.send_file(tmp_path / name)
        assert file_sent(client)["format"] == format

    def test_what_the_program_knows_better(self, client: RTVIClient, tmp_path: Path) -> None:
        """Format and name may be given."""
        (tmp_path / "a.txt").write_bytes(b"x")
        client.send_file(tmp_path / "a.txt", format="text/markdown", name="b")
        file = file_sent(client)
        assert (file["format"], file["name"]) == ("text/markdown", "b")

    @pytest.mark.parametrize(
        ("url", "name", "format"),
        [
            ("https://a.example/x/cat.png", "cat.png", "image/png"),
            ("http://a.example/cat.png?size=1/2.txt", "cat.png", "image/png"),
            ("HTTPS://a.example/doc.pdf", "doc.pdf", "application/pdf"),
            ("https://a.example/", None, "application/octet-stream"),
            ("s3://bucket/key.csv", "key.csv", "text/csv"),
        ],
    )
    def test_urls(self, client: RTVIClient, url: str, name: str | None, format: str) -> None:
        """A URL is for the bot to read; nothing is read here."""
        client.send_file(url)
        file = file_sent(client)
        assert file["source"] == {"type": "url", "url": url}
        assert (file.get("name"), file["format"]) == (name, format)

    @pytest.mark.parametrize(
        ("url", "format"),
        [
            ("data:image/png;base64,a/AAA", "image/png"),
            ("DATA:text/plain,a/b.png", "text/plain"),
            ("data:;base64,aGVsbG8=", "application/octet-stream"),
            ("data:,a;b", "application/octet-stream"),
        ],
    )
    def test_a_url_that_holds_its_data(self, client: RTVIClient, url: str, format: str) -> None:
        """A data URL states the format, and has no name, unless the application passes them."""
        client.send_file(url)
        assert file_sent(client) == {"format": format, "source": {"type": "url", "url": url}}
        client.send_file(url, format="image/gif", name="cat.jpg")
        assert sent(client)[1][1]["file"] == {
            "format": "image/gif",
            "name": "cat.jpg",
            "source": {"type": "url", "url": url},
        }

    @pytest.mark.skipif(os.name == "nt", reason="no file has such a name there")
    @pytest.mark.parametrize("name", ["call-2026-11-26T18:42.txt", "note:1.txt", "s3:key.txt"])
    def test_a_name_with_a_colon_is_no_url(
        self, client: RTVIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """The file is read."""
        monkeypatch.chdir(tmp_path)
        Path(name).write_bytes(b"hello")
        client.send_file(name)
        file = file_sent(client)
        assert (content_of(file), file["format"], file["name"]) == (b"hello", "text/plain", name)

    @pytest.mark.parametrize("path", ["C:\\cats\\cat.png", "c:/cat.png"])
    def test_a_drive_is_no_url(self, client: RTVIClient, path: str) -> None:
        """A path of Windows is one also where it cannot be."""
        with pytest.raises(FileNotFoundError):
            client.send_file(path)
        assert sent(client) == []

    def test_what_cannot_be_read(self, client: RTVIClient, tmp_path: Path) -> None:
        """A file that cannot be read is the system's error, and nothing is sent."""
        with pytest.raises(FileNotFoundError):
            client.send_file(tmp_path / "nosuch")
        with pytest.raises(OSError, match="directory"):
            client.send_file(tmp_path)
        for wrong in (None, 5, [b"x"]):
            with pytest.raises(TypeError):
                client.send_file(wrong)  # type: ignore[arg-type]
        assert sent(client) == []

    def test_what_is_too_large_is_not_read(
        self, client: RTVIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file's size is checked before the file is read; the error names the alternative."""
        path = tmp_path / "large"
        path.touch()
        os.truncate(path, 10**12)
        monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("it is read"))
        with pytest.raises(MessageTooLargeError, match="URL"):
            client.send_file(path)
        with pytest.raises(MessageTooLargeError, match="URL"):
            client.send_file(bytes(transport_of(client).max_message_size + 1))
        assert sent(client) == []

    def test_what_tells_a_smaller_size(
        self, client: RTVIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that grows, or a device, is read up to the limit."""
        path = tmp_path / "growing"
        path.touch()
        before = path.stat()
        os.truncate(path, 10**12)
        monkeypatch.setattr(Path, "stat", lambda self: before)
        with pytest.raises(MessageTooLargeError, match="URL"):
            client.send_file(path)
        assert sent(client) == []

    def test_what_becomes_too_large(self, client: RTVIClient) -> None:
        """Base64 adds a third: a file that fits only before encoding is refused before a byte is sent."""
        limit = transport_of(client).max_message_size
        with pytest.raises(MessageTooLargeError):
            client.send_file(bytes(limit - 1000))
        assert sent(client) == []
        client.send_file(bytes(limit * 3 // 4 - 1000))
        assert len(content_of(file_sent(client))) == limit * 3 // 4 - 1000


class TestKeys:
    @pytest.mark.parametrize("version", ["2.1.0", "2.2.0", "3.0.0", ""])
    def test_at_once(self, version: str) -> None:
        """Bots from RTVI 2.1 on get all keys in one message."""
        with memory_client(bot_of(version)) as client:
            client.send_dtmf("12*#0")
            assert sent(client) == [("dtmf", {"buttons": ["1", "2", "*", "#", "0"]})]

    @pytest.mark.parametrize("version", ["2.0.0", "2.0.9"])
    def test_one_by_one(self, version: str) -> None:
        """RTVI 2.0 has one message for each."""
        with memory_client(bot_of(version)) as client:
            client.send_dtmf("12#")
            assert sent(client) == [("dtmf", {"button": "1"}), ("dtmf", {"button": "2"}), ("dtmf", {"button": "#"})]
            assert len({message.id for message in transport_of(client).sent}) == 4

    @pytest.mark.parametrize("version", ["0.3.0", "1.0.0", "1.4.0"])
    def test_bots_without(self, version: str) -> None:
        """Earlier bots have none; nothing is sent."""
        with memory_client(bot_of(version)) as client:
            with pytest.raises(UnsupportedFeatureError, match=version) as caught:
                client.send_dtmf("12#")
            assert (caught.value.feature, caught.value.needed_version) == ("dtmf", "2.0 or later")
            assert sent(client) == []

    @pytest.mark.parametrize("version", ["2.0.0", "2.2.0"])
    @pytest.mark.parametrize("keys", ["", " ", "1a", "12 3", "1\n", "A", "1\u0662", "+1"])
    def test_what_is_no_key(self, version: str, keys: str) -> None:
        """A string with a character that is no key is refused before any key is sent."""
        with memory_client(bot_of(version)) as client:
            with pytest.raises(ValueError, match=r"keys must be .*DTMF"):
                client.send_dtmf(keys)
            assert sent(client) == []

    @pytest.mark.parametrize("keys", [["1", "2"], 12, None])
    def test_keys_are_a_string(self, keys: Any) -> None:
        """A list, as JavaScript has it, is refused with an example."""
        with memory_client(bot_of("2.2.0")) as client:
            with pytest.raises(TypeError, match="such as '123#'"):
                client.send_dtmf(keys)
            assert sent(client) == []


class TestContext:
    @pytest.mark.parametrize("version", ["1.0.0", "1.2.0", "1.4.0"])
    def test_bots_of_1(self, version: str) -> None:
        """The message goes out, and the call waits for nothing."""
        with memory_client(bot_of(version)) as client:
            client.append_to_context("user", "hello")
            client.append_to_context("assistant", [{"type": "text", "text": "hi"}], run_immediately=True)
            assert sent(client) == [
                ("append-to-context", {"role": "user", "content": "hello", "run_immediately": False}),
                (
                    "append-to-context",
                    {"role": "assistant", "content": [{"type": "text", "text": "hi"}], "run_immediately": True},
                ),
            ]

    @pytest.mark.parametrize(
        ("version", "needed", "advice"),
        [("0.3.0", "1.0 or later, but before 2.0", "Update the bot"), ("2.2.0", "1.0 or later", r"send_text\(\)")],
    )
    def test_other_bots(self, version: str, needed: str, advice: str) -> None:
        """A message that the bot does not know is not sent; the error lists the types that it knows."""
        with memory_client(bot_of(version)) as client:
            with pytest.raises(UnsupportedFeatureError, match=advice) as caught:
                client.append_to_context("user", "hello")
            assert caught.value.needed_version is not None
            assert caught.value.needed_version.startswith(needed)
            assert sent(client) == []


class TestUserInterface:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda c: c.send_ui_event("click"), ("ui-event", {"event": "click", "payload": None})),
            (lambda c: c.send_ui_event("click", [1]), ("ui-event", {"event": "click", "payload": [1]})),
            (
                lambda c: c.send_ui_snapshot({"root": {"ref": "e1"}, "captured_at": 1}),
                ("ui-snapshot", {"tree": {"root": {"ref": "e1"}, "captured_at": 1}}),
            ),
            (lambda c: c.cancel_ui_job_group("j"), ("ui-cancel-job-group", {"job_id": "j"})),
            (
                lambda c: c.cancel_ui_job_group("j", "user"),
                ("ui-cancel-job-group", {"job_id": "j", "reason": "user"}),
            ),
        ],
    )
    def test_each_call_sends_its_message(
        self, client: RTVIClient, call: Callable[[RTVIClient], None], message: tuple[str, Any]
    ) -> None:
        """Each call sends a message with its type and data."""
        call(client)
        assert sent(client) == [message]

    def test_the_job_groups_of_1_3(self) -> None:
        """RTVI 1.3 calls job groups tasks, and gets them under that name."""
        with memory_client(bot_of("1.3.0")) as client:
            client.send_ui_event("click")
            client.cancel_ui_job_group("j")
            client.cancel_ui_job_group("j", "user")
            assert sent(client)[1:] == [
                ("ui-cancel-task", {"task_id": "j"}),
                ("ui-cancel-task", {"task_id": "j", "reason": "user"}),
            ]

    @pytest.mark.parametrize("version", ["0.3.0", "1.2.0"])
    def test_bots_without(self, version: str) -> None:
        """Earlier bots know nothing of it; nothing is sent."""
        with memory_client(bot_of(version)) as client:
            for call in (
                lambda: client.send_ui_event("click"),
                lambda: client.send_ui_snapshot({}),
                lambda: client.cancel_ui_job_group("j"),
            ):
                with pytest.raises(UnsupportedFeatureError, match=version):
                    call()
            assert sent(client) == []


CALLS: list[Callable[[RTVIClient], Any]] = [
    lambda c: c.send_text("x"),
    lambda c: c.send_file(b"x"),
    lambda c: c.send_dtmf("1"),
    lambda c: c.append_to_context("user", "x"),
    lambda c: c.send_ui_event("x"),
    lambda c: c.send_ui_snapshot({}),
    lambda c: c.cancel_ui_job_group("x"),
    lambda c: c.send_client_message("x"),
    lambda c: c.send_client_request("x"),
    lambda c: c.disconnect_bot(),
]


@pytest.mark.parametrize("call", CALLS)
def test_not_ready(call: Callable[[RTVIClient], Any]) -> None:
    """Each call raises `BotNotReadyError` without a ready bot, before the first session and after the last."""
    client = memory_client(bot_of("2.2.0"))
    for _ in range(2):
        with pytest.raises(BotNotReadyError, match=r"connect\(\)"):
            call(client)
        client.connect()
        client.disconnect()
    client.close()
    with pytest.raises(BotNotReadyError, match="closed for good"):
        call(client)


@pytest.mark.parametrize("value", [object(), {1}, float("nan"), float("inf"), b"x"])
@pytest.mark.parametrize(
    "call",
    [
        lambda c, value: c.send_ui_event("x", value),
        lambda c, value: c.send_ui_snapshot({"root": value}),
        lambda c, value: c.send_client_message("x", value),
        lambda c, value: c.send_file(b"x", custom_options={"x": value}),
    ],
)
def test_what_is_no_json(client: RTVIClient, call: Callable[[RTVIClient, Any], Any], value: Any) -> None:
    """A value that is no JSON is the caller's mistake: nothing is sent, and the session goes on."""
    with pytest.raises((TypeError, ValueError)):
        call(client, value)
    assert sent(client) == []
    assert client.state is TransportState.READY


@pytest.mark.parametrize(
    ("version", "type_", "key"),
    [
        ("1.2.0", "ui-cancel-job-group", "job_id"),  # the gate refuses it
        ("1.3.0", "ui-cancel-task", "task_id"),
        ("1.4.0", "ui-cancel-job-group", "job_id"),
        ("2.2.0", "ui-cancel-job-group", "job_id"),
        ("", "ui-cancel-job-group", "job_id"),
        (None, "ui-cancel-job-group", "job_id"),
    ],
)
def test_cancelling_a_job_group(version: str | None, type_: str, key: str) -> None:
    """A bot of 1.3 is told in its own words; a reason is sent where there is one."""
    message = cancel_message("job-1", "user", version)
    assert (message.type, message.data) == (type_, {key: "job-1", "reason": "user"})
    assert cancel_message("job-1", None, version).data == {key: "job-1"}


@pytest.mark.parametrize(
    ("version", "data"),
    [
        ("2.0.0", [{"button": "1"}, {"button": "#"}]),
        ("2.1.0", [{"buttons": ["1", "#"]}]),
        ("2.2.0", [{"buttons": ["1", "#"]}]),
        ("", [{"buttons": ["1", "#"]}]),
        (None, [{"buttons": ["1", "#"]}]),
    ],
)
def test_keys_of_a_telephone(version: str | None, data: list[dict[str, object]]) -> None:
    """dtmf_messages() returns one message for all keys, or one for each key if the bot takes no more."""
    messages = list(dtmf_messages("1#", version))
    assert [message.data for message in messages] == data
    assert {message.type for message in messages} == {"dtmf"}
