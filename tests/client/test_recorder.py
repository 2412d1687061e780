"""Recordings in progress: the content of the files, when it is written, and the effect on sessions."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from rtvi_sync import (
    CloseInfo,
    MemoryTransport,
    ReconnectPolicy,
    Recording,
    RTVIClient,
    RTVIMessage,
    WebSocketTransport,
)
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import memory_client, ready_bot, transport_of, websocket_client
from tests.support.disks import full_disk
from tests.support.forking import in_child
from tests.support.probes import last_session, listen_again, note_late
from tests.support.processes import python, run_python
from tests.support.scripted_talk import TalkingBot, hangs_up, says, tone
from tests.support.slowness import GUARD, Stopwatch
from tests.support.waiting import until


def rows_of(path: Path, kind: str) -> list[dict]:
    return [row for row in Recording.load(path).rows if row["kind"] == kind]


def types_of(path: Path, side: str) -> list[str]:
    return [row["message"]["type"] for row in rows_of(path, "message") if row["dir"] == side]


def recorded_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rtvi-record")]


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_session_is_recorded_from_its_first_step(tmp_path):
    """Started before connect(), a recording has all states, the bot, every message, and the end."""
    client = TalkingBot().client()
    with client.record(tmp_path / "a") as recording, client:
        client.ask("Hello")
        recording.mark("asked")
    assert recording.path == tmp_path / "a.jsonl"
    assert recording.paths == (tmp_path / "a.jsonl",)
    found = Recording.load(tmp_path / "a")
    assert not found.is_cut
    assert found.head["session"] == 1
    assert found.head["format"] == "rtvi-recording"
    states = [row["state"] for row in rows_of(recording.path, "state")]
    assert states == ["initializing", "initialized", "connecting", "connected", "ready", "disconnecting"]
    assert types_of(recording.path, "out") == ["client-ready", "send-text"]
    assert types_of(recording.path, "in")[0] == "bot-ready"
    assert rows_of(recording.path, "mark")[0]["text"] == "asked"
    assert rows_of(recording.path, "end") == [
        {"kind": "end", "code": None, "initiator": "client", "error": None, "t": found.rows[-1]["t"]}
    ]
    assert stat.S_IMODE(recording.path.stat().st_mode) == 0o600
    until(lambda: recorded_threads() == [])  # it ends when the files are complete


def test_a_live_session_is_recorded_from_now_on(tmp_path):
    """The bot and the state are told first, and the end says that the session goes on."""
    with TalkingBot().client() as client:
        client.ask("Before")
        with client.record(tmp_path / "a.wav") as recording:
            client.ask("Now")
        client.ask("After")
    found = Recording.load(recording.path)
    assert [row["kind"] for row in found.rows[:3]] == ["head", "bot", "state"]
    assert [turn.user_text for turn in found.turns()] == ["Now"]
    assert (found.rows[-1]["kind"], found.rows[-1]["initiator"]) == ("end", None)


def test_an_answer_that_comes_after_the_recording(tmp_path):
    """A turn that is in progress when the recording is closed has not failed."""
    with TalkingBot(lambda _: None).client() as client:
        with client.record(tmp_path / "a") as recording:
            client.send_text("Hello?")
        assert [turn.status for turn in client.turns()] == ["in_progress"]
    assert [turn.status for turn in Recording.load(recording.path).turns()] == ["in_progress"]


def test_rows_are_on_the_disk_while_the_session_goes_on(tmp_path):
    """Each row is written within a moment, in one piece."""
    with TalkingBot().client() as client, client.record(tmp_path / "a"):
        client.ask("Hello")
        until(lambda: (tmp_path / "a.jsonl").read_text().count("bot-llm-text") == 1)
        assert all(json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
        assert Recording.load(tmp_path / "a").is_cut


def test_an_existing_recording_is_not_overwritten(tmp_path):
    """The error precedes any writing, for either file; overwrite=True replaces both."""
    client = memory_client()
    for suffix in (".jsonl", ".wav"):
        existing = tmp_path / f"a{suffix}"
        existing.write_bytes(b"precious")
        with pytest.raises(FileExistsError, match="overwrite=True"):
            client.record(tmp_path / "a.jsonl")
        assert existing.read_bytes() == b"precious"
        assert list(tmp_path.iterdir()) == [existing]
        with client.record(tmp_path / "a", overwrite=True):
            pass
        assert Recording.load(tmp_path / "a").head
        assert not (tmp_path / "a.wav").exists()
        (tmp_path / "a.jsonl").unlink()


def test_a_folder_that_is_missing_is_named(tmp_path):
    """The system's own error is raised, and no thread is left."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        memory_client().record(tmp_path / "nowhere" / "a")
    until(lambda: recorded_threads() == [])  # it ends when the files are complete


def test_each_session_has_files_of_its_own(tmp_path):
    """The next session, by connect() or by the policy, starts at zero in NAME-2, NAME-3."""
    bot = TalkingBot()
    client = bot.client(reconnect=ReconnectPolicy(initial_delay=0.01))
    with client.record(tmp_path / "a.jsonl") as recording:
        with client:
            client.ask("One")
            hangs_up(client, 1006)
            until(lambda: len(recording.paths) == 2)
            client.wait_until_ready(GUARD)
            client.ask("Two")
        with client:
            client.ask("Three")
    assert [path.name for path in recording.paths] == ["a.jsonl", "a-2.jsonl", "a-3.jsonl"]
    loaded = Recording.load_all(tmp_path)
    assert [recording.head["session"] for recording in Recording.load_all(*recording.paths)] == [1, 2, 3]
    assert {turn.user_text for each in loaded for turn in each.turns()} == {"One", "Two", "Three"}
    ends = [rows_of(path, "end")[0] for path in recording.paths]
    assert [end["code"] for end in ends] == [1006, None, None]


def test_attempts_that_fail_are_in_the_file_of_the_session_that_follows(tmp_path):
    """The file reports the failed attempts, and contains the session that works."""
    tries = iter([False, True])

    def bot(transport: MemoryTransport, message: RTVIMessage):
        if message.type == "client-ready" and not next(tries):
            raise OSError("no bot today")
        return ready_bot(transport, message)

    client = memory_client(bot)
    with client.record(tmp_path / "a") as recording:
        with pytest.raises(Exception, match="no bot today"):
            client.connect()
        with client:
            pass
    assert len(recording.paths) == 1
    failed = [row for row in rows_of(recording.path, "state") if row.get("error")]
    assert "no bot today" in failed[0]["error"]
    assert len(rows_of(recording.path, "bot")) == 1


def test_several_recordings_of_one_client(tmp_path):
    """Each recording has the events of the time in which it is open."""
    with TalkingBot().client() as client, client.record(tmp_path / "a"):
        client.ask("One")
        with client.record(tmp_path / "b"):
            client.ask("Two")
    assert [turn.user_text for turn in Recording.load(tmp_path / "a").turns()] == ["One", "Two"]
    assert [turn.user_text for turn in Recording.load(tmp_path / "b").turns()] == ["Two"]


def test_close_ends_the_recording_of_a_client(tmp_path):
    """A client that is closed for good, or dropped, needs no close() of its recordings."""
    client = memory_client()
    client.record(tmp_path / "a")
    client.connect()
    client.close()
    assert not Recording.load(tmp_path / "a").is_cut
    client = memory_client()
    client.record(tmp_path / "b")
    del client
    until(lambda: not Recording.load(tmp_path / "b").is_cut)
    until(lambda: not recorded_threads())


def test_a_message_that_could_not_be_sent_is_not_recorded(tmp_path):
    """The bot has not got it."""
    with TalkingBot().client() as client, client.record(tmp_path / "a") as recording:
        with pytest.raises(Exception, match="bytes"):
            client.send_text("x" * 2_000_000)
        client.ask("Hello")
    assert types_of(recording.path, "out") == ["send-text"]


# -- pages ------------------------------------------------------------------------------------------------------------


def test_a_page_is_written_when_the_recording_ends(tmp_path):
    """Each session has its own, beside its other files, which only this user may read."""
    client = TalkingBot().client()
    with client.record(tmp_path / "a", report=True) as recording:
        for question in ("One", "Two"):
            with client:
                client.ask(question)
        until(lambda: [path.name for path in recording.paths] == ["a.jsonl", "a-2.jsonl"])
        assert not list(tmp_path.glob("*.html"))
    assert [path.name for path in recording.paths] == ["a.jsonl", "a-2.jsonl", "a.html", "a-2.html"]
    first, second = (path.read_text("utf-8") for path in recording.paths[2:])
    assert "You said One" in first
    assert "You said Two" in second
    assert stat.S_IMODE(recording.paths[2].stat().st_mode) == 0o600
    until(lambda: not recorded_threads())


def test_a_page_needs_no_close_of_its_recording(tmp_path):
    """A closed or dropped client's page is written soon, and all pages are written before the process ends."""
    client = memory_client()
    client.record(tmp_path / "closed", report=True)
    client.connect()
    client.close()
    client = memory_client()
    client.record(tmp_path / "dropped", report=True)
    del client
    for name in ("closed", "dropped"):
        until((tmp_path / f"{name}.html").exists)
    status, _, err = run_python(
        "from tests.support.clients import memory_client; client = memory_client(); "
        f"client.record({str(tmp_path / 'exit')!r}, report=True); client.connect()"
    )
    assert (status, err) == (0, "")
    assert (tmp_path / "exit.html").exists()


def test_a_page_that_cannot_be_written_is_one_warning(tmp_path, caplog):
    """The session, and the recording, are as without one."""
    client = TalkingBot().client()
    with client.record(tmp_path / "a", report=True) as recording:
        for _ in range(2):
            with client:
                client.ask("Hello")
        until(lambda: len(recording.paths) == 2)
        for page in ("a.html", "a-2.html"):
            (tmp_path / page).mkdir()
    (warning,) = caplog.messages
    assert warning.startswith(f"The page {tmp_path / 'a.html'} cannot be written: ")
    assert [path.name for path in recording.paths] == ["a.jsonl", "a-2.jsonl"]
    assert not Recording.load(tmp_path / "a").is_cut


def test_an_existing_page_is_not_overwritten(tmp_path):
    """A page counts as a file of the recording if one will be written, and only then."""
    page = tmp_path / "a.html"
    page.write_text("precious")
    client = memory_client()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        client.record(tmp_path / "a", report=True)
    with client.record(tmp_path / "a"):
        pass
    assert page.read_text() == "precious"
    with client.record(tmp_path / "a", report=True, overwrite=True):
        assert not page.exists()
    assert "<!DOCTYPE html>" in page.read_text("utf-8")


# -- audio ------------------------------------------------------------------------------------------------------------


def test_both_sides_are_in_the_wav_file(tmp_path):
    """The bot's audio is bit exact, and the user's is beside it."""
    bot = TalkingBot(audio=True, spoken=lambda text: tone(1.0))
    with bot.client() as client, client.record(tmp_path / "a") as recording:
        turn = client.ask("Hello")
    assert recording.paths == (tmp_path / "a.jsonl", tmp_path / "a.wav")
    found = Recording.load(recording.path)
    assert found.audio().pcm.lstrip(b"\0") == tone(1.0)
    assert found.audio(turn.number).pcm == turn.audio.pcm
    assert not found.audio(side="user").pcm.strip(b"\0")
    assert stat.S_IMODE((tmp_path / "a.wav").stat().st_mode) == 0o600


def test_what_an_interruption_voids_is_not_heard(tmp_path):
    """Samples that are dropped are counted, and the row of the audio ends there."""
    bot = TalkingBot(lambda text: None)
    client = RTVIClient(
        transport=MemoryTransport(bot, audio=True), speaker=NullSink(), enable_mic=False, connect_timeout=GUARD
    )
    with client, client.record(tmp_path / "a") as recording:
        transport_of(client).receive_audio(tone(10.0), 24_000)
        says(client, [RTVIMessage("bot-interrupted", None)])
    (interruption,) = rows_of(recording.path, "interruption")
    found = Recording.load(recording.path)
    heard = found.audio().pcm.strip(b"\0")
    assert interruption["dropped"] > 8 * 24_000
    assert len(heard) // 2 + interruption["dropped"] == 10 * 24_000
    assert sum(row["n"] for row in rows_of(recording.path, "audio")) * 2 == len(heard)


def test_a_session_without_audio_has_no_wav_file(tmp_path):
    """A session without audio, or whose audio is not recorded, has no WAV file."""
    with TalkingBot().client() as client, client.record(tmp_path / "a") as recording:
        client.ask("Hello")
    assert recording.paths == (tmp_path / "a.jsonl",)
    with TalkingBot(audio=True).client() as client, client.record(tmp_path / "b", audio=False):
        client.ask("Hello")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]
    assert not rows_of(tmp_path / "b", "audio")


def test_files_of_an_older_recording_do_not_end_this_one(tmp_path, caplog):
    """The next session takes the next number that is free."""
    (tmp_path / "a-2.jsonl").write_text("old")
    client = TalkingBot().client()
    with client.record(tmp_path / "a") as recording:
        for _ in range(2):
            client.connect()
            client.ask("Hello")
            client.disconnect()
    assert [path.name for path in recording.paths] == ["a.jsonl", "a-3.jsonl"]
    assert (tmp_path / "a-2.jsonl").read_text() == "old"
    assert len(Recording.load(tmp_path / "a-3").turns()) == 1
    assert caplog.records == []


def test_a_folder_that_is_gone_ends_the_recording_only(tmp_path, caplog):
    """The files of the next session cannot be created: one warning says so, and `lost`."""
    (tmp_path / "x").mkdir()
    client = TalkingBot().client()
    with client.record(tmp_path / "x" / "a") as recording:
        client.connect()
        client.disconnect()
        until(lambda: b'"end"' in recording.path.read_bytes())
        recording.path.rename(tmp_path / "a.jsonl")
        (tmp_path / "x").rmdir()
        client.connect()
        assert client.ask("Hello").bot_text
        client.disconnect()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert [row["why"] for row in recording.lost] == ["full"]


def test_a_session_is_heard_once(tmp_path):
    """A recording hears a session once, even if it starts while the bot becomes ready and both of them listen."""
    with EmbeddedBot() as bot, websocket_client(bot, speaker=NullSink(), mic=False) as client:
        with client.record(tmp_path / "a") as recording:
            listen_again(recording, client)
            client.ask("Hello")
        (found,) = Recording.load(tmp_path / "a").turns()
        assert abs(found.audio.seconds - client.turns()[-1].audio.seconds) < 0.2


def test_what_a_session_brings_late_is_not_in_the_next(tmp_path):
    """A message that another thread was noting as the session ended has no place in the files of the next one."""
    client = TalkingBot().client()
    with client.record(tmp_path / "a") as recording:
        client.connect()
        first = last_session(client)
        client.disconnect()
        client.connect()
        note_late(recording, first, '{"label": "rtvi-ai", "type": "late"}')
        client.disconnect()
    assert "late" not in types_of(tmp_path / "a-2.jsonl", "in")


def test_a_mark_between_two_sessions_begins_the_files_of_the_next(tmp_path):
    """A mark that is put when no session is live is kept, behind the head of the next files."""
    client = TalkingBot().client()
    with client.record(tmp_path / "a") as recording:
        client.connect()
        client.disconnect()
        until(lambda: rows_of(tmp_path / "a.jsonl", "end"))
        recording.mark("between")
        client.connect()
        client.disconnect()
    assert rows_of(tmp_path / "a.jsonl", "mark") == []
    assert [row["text"] for row in rows_of(tmp_path / "a-2.jsonl", "mark")] == ["between"]
    assert "bot-ready" in types_of(tmp_path / "a-2.jsonl", "in")
    assert len(recording.paths) == 2


def test_what_waits_for_a_slow_disk_is_bounded_in_bytes(tmp_path):
    """Large messages are counted and left out while the thread that writes hangs; those that fit are written."""
    hangs, goes_on = threading.Event(), threading.Event()

    def redact(row):
        if row["kind"] == "mark":
            hangs.set()
            goes_on.wait(GUARD)
        return row

    transport = MemoryTransport()
    with RTVIClient(transport=transport) as client, client.record(tmp_path / "a", redact=redact) as recording:
        recording.mark("now")
        assert hangs.wait(GUARD)
        for _ in range(100):
            transport.receive({"label": "rtvi-ai", "type": "server-message", "data": {"text": "a" * 2**20}})
        goes_on.set()
    until(lambda: rows_of(tmp_path / "a.jsonl", "end"))  # `close()` waits for 5 s at most
    (lost,) = recording.lost
    assert 30 <= lost["rows"] <= 40  # 64 MiB of them fit
    assert types_of(tmp_path / "a.jsonl", "in").count("server-message") == 100 - lost["rows"]


@pytest.mark.parametrize("fault", [SystemExit, KeyboardInterrupt, None])
def test_redact_may_exit_and_close(tmp_path, fault):
    """On the thread that writes, nothing that it raises or closes (None) ends that: other recordings are written."""

    def redact(row):
        if row["kind"] == "mark":
            if fault is not None:
                raise fault
            recording.close()
        return row

    began = time.monotonic()
    with TalkingBot().client() as client, client.record(tmp_path / "a", redact=redact) as recording:
        recording.mark("here")
        client.ask("Hello")
    with TalkingBot().client() as client, client.record(tmp_path / "b") as other:
        client.ask("Hello")
    assert time.monotonic() - began < 4.0  # it waits for 5 s at most
    assert "closed" in repr(recording)
    assert "closed" in repr(other)


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_any_file(tmp_path):
    """Planted in the URL, a header, the request's data, a message, an error and the token, none is written."""
    secrets = {name: f"planted-{name}" for name in ("query", "header", "data", "message", "error", "token", "login")}
    with EmbeddedBot() as bot:
        url = bot.ws_url.replace("ws://", f"ws://{secrets['login']}@") + f"?room={secrets['query']}"
        transport = WebSocketTransport(url, token=secrets["token"], headers={"X-Key": secrets["header"]})
        client = RTVIClient(
            transport=transport,
            params={"request_data": {"api_key": secrets["data"]}},
            mic=False,
            speaker=False,
            connect_timeout=GUARD,
        )
        with client.record(tmp_path / "a") as recording, client:
            everywhere = [secret for name, secret in secrets.items() if name not in ("message", "error")]
            client.send_client_message("x", {"password": secrets["message"], "text": " ".join(everywhere)})
            client.send_client_message("y", {"url": f"http://host/?access_token={secrets['error']}"})
            client.ask(f"Is {secrets['token']} right?")
            recording.mark(f"{secrets['header']} https://me:{secrets['error']}@host/")
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"***" in written
    found = [name for name, secret in secrets.items() if secret.encode() in written]
    assert found == []


def test_redact_may_change_and_leave_out_rows(tmp_path, caplog):
    """The function gets the rows as they would be written; if it raises, the row is left out and the log says so."""

    def redact(row):
        if row["kind"] == "mark":
            raise RuntimeError("oops")
        if row["kind"] == "message" and row["message"]["type"] == "bot-llm-text":
            return None
        return row | {"seen": True}

    with (
        caplog.at_level(logging.ERROR, "rtvi_sync"),
        TalkingBot().client() as client,
        client.record(tmp_path / "a", redact=redact) as recording,
    ):
        recording.mark("secret")
        client.ask("Hello")
    assert "oops" in caplog.text
    rows = Recording.load(tmp_path / "a").rows
    assert all(row["seen"] for row in rows)
    assert not rows_of(tmp_path / "a", "mark")
    assert "bot-llm-text" not in types_of(tmp_path / "a", "in")


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_recording_that_is_full_ends_and_the_session_goes_on(tmp_path, caplog):
    """One warning; the files stay below the limit, are valid, and report the missing part."""
    with TalkingBot().client() as client:
        with caplog.at_level(logging.WARNING, "rtvi_sync"):
            recording = client.record(tmp_path / "a", max_bytes=20_000)
            for _ in range(20):
                client.ask("Hello")
            until(lambda: recording.lost)
        client.ask("Hello")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    found = Recording.load(tmp_path / "a")
    assert (tmp_path / "a.jsonl").stat().st_size <= 20_000
    assert (found.lost[0]["why"], found.rows[-1]["kind"], found.is_cut) == ("full", "end", False)
    assert recording.lost == found.lost


@pytest.mark.skipif(sys.platform != "linux", reason="the disk is full by a limit of Linux")
def test_a_full_disk_ends_the_recording_only(tmp_path, caplog):
    """The written part can be read."""
    bot = TalkingBot(audio=True, spoken=lambda text: tone(1.0))
    with bot.client() as client, client.record(tmp_path / "a") as recording:
        with caplog.at_level(logging.WARNING, "rtvi_sync"), full_disk(30_000):
            client.ask("Hello")
            until(lambda: recording.lost)
        client.ask("Hello")
    assert sum("ends, but not the session" in record.message for record in caplog.records) == 1
    assert Recording.load(tmp_path / "a").turns()


def test_an_exit_completes_the_files(tmp_path):
    """A program that ends without closing anything leaves whole files, with the end of the session."""
    script = """
        import sys
        from rtvi_sync import MemoryTransport, RTVIClient
        client = RTVIClient(transport=MemoryTransport())
        client.record(sys.argv[1])
        client.connect()
    """
    code, _, err = run_python(script, str(tmp_path / "a"))
    assert (code, err) == (0, "")
    found = Recording.load(tmp_path / "a")
    assert (found.is_cut, found.rows[-1]["kind"], found.rows[-1]["initiator"]) == (False, "end", "client")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_writes_nothing(tmp_path):
    """The files are the parent's, which goes on."""
    with TalkingBot().client() as client, client.record(tmp_path / "a") as recording:

        def child() -> bool:
            recording.mark("child")
            recording.close()
            other = memory_client()
            with other.record(tmp_path / "b"), other:
                pass
            return True

        assert in_child(child)
        client.ask("Hello")
    assert not rows_of(tmp_path / "a", "mark")
    assert [turn.user_text for turn in Recording.load(tmp_path / "a").turns()] == ["Hello"]
    assert not Recording.load(tmp_path / "b").is_cut


def test_arguments_are_checked(tmp_path):
    """Before a file is made."""
    client = memory_client()
    for options in ({"audio": 1}, {"overwrite": "x"}, {"max_bytes": 0}, {"redact": 5}, {"redact": lambda: 0}):
        with pytest.raises((TypeError, ValueError), match=next(iter(options))):
            client.record(tmp_path / "a", **options)
    with pytest.raises(TypeError, match="path"):
        client.record(5)  # type: ignore[arg-type]
    with client.record(tmp_path / "a") as recording, pytest.raises(TypeError, match="text"):
        recording.mark(5)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_nothing_is_imported_for_a_client_that_records_nothing():
    """The recorder and its parts are imported on demand, and there is no thread."""
    script = """
        import sys, threading
        from rtvi_sync import MemoryTransport, RTVIClient
        with RTVIClient(transport=MemoryTransport()) as client:
            parts = ("recorder", "recording_rows", "stereo_file", "recording")
            print([name for name in sys.modules if name.startswith("rtvi_sync.") and name.split(".")[-1] in parts])
            print([thread.name for thread in threading.enumerate() if "record" in thread.name])
    """
    code, out, err = run_python(script, executable=sys.executable)
    assert (code, out.split(), err) == (0, ["[]", "[]"], "")


# -- killed -----------------------------------------------------------------------------------------------------------

_SPEAKING = """
    import sys, time
    from rtvi_sync import connect
    from rtvi_sync.media import NullSink, ToneSource
    from rtvi_sync.testing import EmbeddedBot
    with EmbeddedBot() as bot, connect(bot.ws_url, mic=ToneSource(), speaker=NullSink()) as client:
        client.record(sys.argv[1])
        print("recording", flush=True)
        while True:
            client.ask("Tell me a story, please, with many words in it, so that it takes a while to say all of them.")
"""


@pytest.mark.parametrize("moment", [0.7, 1.9, 3.2])
def test_a_killed_process_leaves_valid_files(tmp_path, moment):
    """At most half a second of audio is missing, and 1.2 s of rows; the sizes are right."""
    with python(_SPEAKING, str(tmp_path / "a")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Stopwatch() as watch:
            time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait(GUARD)
    found = Recording.load(tmp_path / "a")
    assert found.is_cut
    assert found.turns() is not None
    user = found.audio(side="user").seconds
    assert (os.stat(tmp_path / "a.wav").st_size - 44) % 4 == 0
    written = [row for row in found.rows if row["kind"] in ("audio", "message")]
    assert user >= watch.took - 0.5 * watch.slower
    assert max(row["until"] if "until" in row else row["t"] for row in written) >= watch.took - 1.2 * watch.slower


def test_close_info_of_the_server_is_the_end(tmp_path):
    """Who ended the session, with the code and the error."""
    with TalkingBot().client() as client, client.record(tmp_path / "a") as recording:
        transport_of(client).end(CloseInfo(code=1011, initiator="server", error=RuntimeError("boom")))
        client.wait(GUARD)
    (end,) = rows_of(recording.path, "end")
    assert (end["code"], end["initiator"]) == (1011, "server")
    assert "boom" in end["error"]
