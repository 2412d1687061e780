"""Recordings that are read: their damage, the turns, and their audio."""

from __future__ import annotations

import json
import random
import time
import wave
from pathlib import Path

import pytest

from rtvi_sync import Recording, RTVIClient
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import websocket_client
from tests.support.scripted_talk import TalkingBot, tone
from tests.support.slowness import GUARD

HEAD = {"kind": "head", "format": "rtvi-recording", "version": 1, "url": "ws://host/ws"}
READY = {"t": 0.1, "kind": "bot", "rtvi": "2.2.0", "about": {"library": "pipecat-ai", "library_version": "1.14.0"}}


def written(path: Path, *rows: dict) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def stereo(path: Path, seconds: float) -> Path:
    """Write a WAV file in which both sides are audible."""
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, 24_000, 0, "NONE", ""))
        file.writeframes(tone(2 * seconds))
    return path


def message(t: float, side: str, type_: str, data: object = None, id_: str | None = None) -> dict:
    content = {"label": "rtvi-ai", "type": type_, "data": data, "id": id_}
    return {"t": t, "kind": "message", "dir": side, "message": content}


def asked(t: float, text: str = "Hi") -> list[dict]:
    """Return the rows of a question and its answer."""
    return [
        message(t, "out", "send-text", {"content": text}, f"id-{t}"),
        message(t + 0.1, "in", "user-input", {"text": text, "input_type": "chat", "msg_id": f"id-{t}"}),
        message(t + 0.1, "in", "user-llm-text", {"text": text}),
        message(t + 0.4, "in", "bot-llm-started"),
        message(t + 0.5, "in", "bot-llm-text", {"text": f"You said {text}"}),
        message(t + 0.6, "in", "bot-llm-stopped"),
    ]


AUDIO = {"t": 0.5, "until": 1.48, "kind": "audio", "dir": "in", "rate_hz": 24_000, "at": 0, "n": 24_000, "frames": 50}
END = {"t": 9.0, "kind": "end", "code": 1000, "initiator": "server", "error": None}


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.wav", "a"])
def test_either_file_names_a_recording(tmp_path, name):
    """The name without a suffix does so, too."""
    written(tmp_path / "a.jsonl", HEAD, READY, END)
    found = Recording.load(tmp_path / name)
    assert found.path == tmp_path / "a.jsonl"
    assert (found.head, found.rtvi, found.bot) == (HEAD, "2.2.0", "RTVI 2.2.0, pipecat-ai 1.14.0")
    assert (found.seconds, found.is_cut, found.lost) == (9.0, False, ())
    assert found.rows == (HEAD, READY, END)


def test_folders_have_recordings(tmp_path):
    """In the order of their names, and files between them."""
    (tmp_path / "runs" / "x").mkdir(parents=True)
    for name in ("runs/b", "runs/a", "runs/x/c", "d"):
        written(tmp_path / f"{name}.jsonl", HEAD)
    names = [recording.path.stem for recording in Recording.load_all(tmp_path / "d", tmp_path / "runs")]
    assert names == ["d", "a", "b", "c"]
    assert Recording.load_all() == ()


def test_what_is_missing_is_tolerated(tmp_path):
    """A cut last line, no head, no end, no bot and no WAV file: the turns are there, and `is_cut` tells."""
    path = written(tmp_path / "a.jsonl", *asked(1.0))
    path.write_text(path.read_text() + '{"t":9,"kind":"mess')
    found = Recording.load(path)
    assert found.is_cut
    assert (found.head, found.rtvi, found.bot) == ({}, "", "")
    assert [turn.bot_text for turn in found.turns()] == ["You said Hi"]
    assert not found.audio()
    assert Recording.load(written(tmp_path / "b.jsonl")).is_cut


def test_a_wav_file_that_is_short_or_gone_is_tolerated(tmp_path):
    """The remaining audio can be heard."""
    wav = {"t": 0.5, "kind": "wav", "file": "old.wav", "rate_hz": 24_000}
    path = written(tmp_path / "a.jsonl", HEAD, READY, wav, AUDIO, END)
    assert Recording.load(path).is_cut
    assert not Recording.load(path).audio()
    stereo(tmp_path / "a.wav", 0.25)
    found = Recording.load(path)
    assert found.is_cut
    assert found.audio().seconds == 0.25


def test_audio_behind_the_last_row_is_a_stretch(tmp_path):
    """A process that was killed had no time for its row."""
    wav = {"t": 0.5, "kind": "wav", "file": "a.wav", "rate_hz": 24_000}
    path = written(tmp_path / "a.jsonl", HEAD, READY, wav)
    stereo(tmp_path / "a.wav", 0.5)
    rests = [row for row in Recording.load(path).rows if row["kind"] == "audio"]
    assert [(row["dir"], row["at"], row["n"], row["frames"]) for row in rests] == [
        ("in", 0, 12_000, 25),
        ("out", 0, 12_000, 25),
    ]


@pytest.mark.parametrize("damage", ["", "RIFF", "text " * 100, "mono"])
def test_a_wav_file_that_is_damaged_is_none(tmp_path, damage):
    """The turns can be seen, and `is_cut` tells."""
    wav = {"t": 0.5, "kind": "wav", "file": "a.wav", "rate_hz": 24_000}
    path = written(tmp_path / "a.jsonl", HEAD, READY, wav, *asked(1.0), END)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(tone(0.5))
    if damage != "mono":
        (tmp_path / "a.wav").write_text(damage)
    found = Recording.load(path)
    assert found.is_cut
    assert not found.audio()
    assert [turn.bot_text for turn in found.turns()] == ["You said Hi"]


def test_audio_behind_what_the_header_tells_is_read(tmp_path):
    """The process was killed before it wrote the sizes."""
    wav = {"t": 0.5, "kind": "wav", "file": "a.wav", "rate_hz": 24_000}
    path = written(tmp_path / "a.jsonl", HEAD, READY, wav)
    data = stereo(tmp_path / "a.wav", 0.5).read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:40] + bytes(4) + data[44:])
    assert Recording.load(path).audio().seconds == 0.5


def test_a_stretch_longer_than_its_file_takes_no_time(tmp_path):
    """A made-up row with a million years of frames is cut to the existing ones."""
    wav = {"t": 0.5, "kind": "wav", "file": "a.wav", "rate_hz": 24_000}
    audio = {"t": 1, "until": 2, "kind": "audio", "dir": "in", "rate_hz": 24_000, "at": 0}
    path = written(tmp_path / "a.jsonl", HEAD, READY, wav, audio | {"n": 2**39, "frames": 2**38}, *asked(1.0), END)
    stereo(tmp_path / "a.wav", 0.5)
    assert [turn.bot_text for turn in Recording.load(path).turns()] == ["You said Hi"]


def test_each_recording_is_read_once(tmp_path):
    """A shell's "kept/*" names both files and the page, and would count each turn three times."""
    for name in ("a.jsonl", "a.wav", "a.html"):
        written(tmp_path / name, HEAD)
    assert len(Recording.load_all(*sorted(tmp_path.iterdir()), tmp_path)) == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.wav"])
def test_a_recording_is_not_overwritten_by_what_is_made_of_it(tmp_path, name):
    """No way of writing something replaces either file of the recording."""
    path = written(tmp_path / "a.jsonl", HEAD, READY, *asked(1.0), END)
    before = path.read_bytes()
    for write in (Recording.load(path).report, lambda to: Recording.load(path).export(to, format="vtt")):
        with pytest.raises(ValueError, match="would be overwritten"):
            write(tmp_path / "x" / ".." / name)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "error"),
    [("RIFF\n", "it is no recording"), ('{"kind":"head","version":7}\n', "version 7")],
)
def test_other_files_are_refused_with_the_reason(tmp_path, content, error):
    """The error names the file."""
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(ValueError, match=f"a.jsonl: .*{error}"):
        Recording.load(tmp_path / "a.jsonl")
    with pytest.raises(FileNotFoundError, match=r"b\.jsonl"):
        Recording.load(tmp_path / "b")


def test_any_bytes_give_a_recording_or_an_error(tmp_path):
    """Damage of whatever kind raises nothing else."""
    good = "".join(f"{json.dumps(row)}\n" for row in (HEAD, READY, *asked(1.0), END)).encode()
    damage = random.Random(3)
    for _ in range(300):
        data = bytearray(good)
        for _ in range(damage.randint(1, 8)):
            data[damage.randrange(len(data))] = damage.randrange(256)
        (tmp_path / "a.jsonl").write_bytes(data)
        try:
            found = Recording.load(tmp_path / "a")
        except ValueError:
            continue
        found.turns()
        _ = found.seconds, found.bot, found.lost, found.head


def test_any_values_give_a_recording_or_an_error(tmp_path):
    """Well-formed but made-up rows raise no other errors: the turns, the page and the exports work."""
    wav = {"t": 0.5, "kind": "wav", "file": "a.wav", "rate_hz": 24_000}
    lost = {"t": 2, "kind": "lost", "side": "in", "seconds": 1.0, "why": "full"}
    mark = {"t": 2, "kind": "mark", "text": "here"}
    good = [HEAD, READY, wav, AUDIO, *asked(1.0), lost, mark, {"t": 3, "kind": "interruption", "dropped": 5}, END]
    stereo(tmp_path / "a.wav", 1.0)
    values = [None, True, -1, 0, 3, 1e300, 10**400, float("nan"), "", "x", "\ud800", [], ["x"], {}, {"type": 1}]
    damage = random.Random(4)

    def damaged(value: object) -> object:
        if damage.random() < 0.05:
            return damage.choice(values)
        if isinstance(value, dict):
            return {name: damaged(each) for name, each in value.items() if damage.random() > 0.03}
        return value

    for _ in range(60):
        path = written(tmp_path / "a.jsonl", *(damaged(row) for row in good))  # type: ignore[arg-type]
        try:
            found = Recording.load(path)
        except ValueError:
            continue
        found.turns()
        for format_ in ("vtt", "otlp", "chrome", "conversation"):
            found.export(format=format_)
        page = found.report().partition('id="data">')[2].partition("</script>")[0]
        json.loads(page, parse_constant=pytest.fail)


# -- turns ------------------------------------------------------------------------------------------------------------


def test_turns_have_their_times_in_the_recording(tmp_path):
    """Times are in seconds since the recording started."""
    (turn,) = Recording.load(written(tmp_path / "a.jsonl", HEAD, READY, *asked(1.0), END)).turns()
    assert (turn.user_text, turn.bot_text, turn.modality, turn.number) == ("Hi", "You said Hi", "text", 1)
    assert (turn.timings.user_started, turn.timings.first_token) == (1.0, 1.5)
    assert turn.time_to_first_token == 0.5
    assert turn.bot == "RTVI 2.2.0, pipecat-ai 1.14.0"


def test_a_cut_recording_has_its_last_turn(tmp_path):
    """The last turn is in progress, because nothing tells how it ended."""
    (turn,) = Recording.load(written(tmp_path / "a.jsonl", HEAD, READY, *asked(1.0)[:5])).turns()
    assert turn.status == "in_progress"
    assert turn.bot_text == "You said Hi"


def test_waits_pass_as_in_the_session(tmp_path):
    """A bot that has written something, and is silent, is waited for as long as by the client."""
    rows = [*asked(1.0), message(100.0, "in", "server-message", {})]
    (turn,) = Recording.load(written(tmp_path / "a.jsonl", HEAD, READY, *rows, END | {"t": 200.0})).turns()
    assert turn.assumed
    assert turn.timings.ended is not None
    assert turn.timings.ended < 100.0


@pytest.mark.parametrize("question", ["How are you?", tone(1.0)], ids=["typed", "spoken"])
def test_turns_and_audio_of_both_sides(tmp_path, question):
    """The turns of a talk, typed and spoken, equal the client's, with their latencies and their audio."""
    with (
        EmbeddedBot(audio_out_sample_rate_hz=24_000) as bot,
        websocket_client(bot, speaker=NullSink(), mic=False) as client,
        client.record(tmp_path / "a") as recording,
    ):
        client.ask(question, sample_rate_hz=None if isinstance(question, str) else 24_000)
        live = client.turns()
    found = Recording.load(recording.path)
    assert not found.is_cut
    for before, after in zip(live, found.turns(), strict=True):
        assert (after.status, after.initiator, after.modality) == (before.status, before.initiator, before.modality)
        assert (after.user_text, after.bot_text, after.spoken_text) == (
            before.user_text,
            before.bot_text,
            before.spoken_text,
        )
        heard, said = (turn.audio.pcm.lstrip(b"\0") for turn in (after, before))
        assert abs(len(heard) - len(said)) <= 4_800  # a frame's arrival is known to 10 ms
        assert heard[:24_000] == said[:24_000]
        assert found.audio(after) == after.audio
        assert found.audio(after.number, "user") == after.user_audio
        for name in ("time_to_first_token", "time_to_first_audio", "voice_to_voice", "transcription"):
            assert getattr(after, name) == pytest.approx(getattr(before, name), abs=0.05), name
    with pytest.raises(ValueError, match="turn"):
        found.audio(99)
    with pytest.raises(ValueError, match="side"):
        found.audio(side="left")  # type: ignore[arg-type]


def test_an_hour_is_read_in_seconds(tmp_path):
    """1,000 turns; those that a client keeps are made."""
    rows = [row for number in range(1000) for row in asked(1.0 + 3.6 * number, f"question {number}")]
    path = written(tmp_path / "a.jsonl", HEAD, READY, *rows, END | {"t": 3600.0})
    began = time.monotonic()
    assert len(Recording.load(path).turns()) == 1000
    assert time.monotonic() - began < GUARD


def test_a_failed_expectation_can_be_looked_at_later(tmp_path):
    """A recording of a failed test has the turn that failed."""
    client: RTVIClient = TalkingBot(lambda text: "No").client()
    with client.record(tmp_path / "a"), client, pytest.raises(AssertionError):
        client.ask("Yes?").expect(contains="Yes")
    (turn,) = Recording.load(tmp_path / "a").turns()
    assert turn.bot_text == "No"
