"""Runs the scenario files beside it by Pipecat's own harness, and writes its verdicts to `verdicts.json`.

Run it by the Python of a Pipecat environment: ``python tests/pipecat/scenarios/record.py``. It starts the bot that the
scenarios are for, `rehearsed.py`. Speech, its recognition and the judge are stand-ins without any model; `stand_ins.py`
has the parts that they and the test's stand-ins share.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from pipecat.evals.judge import JudgeVerdict
from pipecat.evals.scenario import EvalScenarioFile
from pipecat.evals.script_session import EvalScriptSession
from pipecat.evals.session import EvalSessionParams
from pipecat.evals.tts import CachingTTSService
from pipecat.frames.frames import Frame, TranscriptionFrame, TTSAudioRawFrame
from pipecat.services.settings import STTSettings, TTSSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.utils.time import time_now_iso8601
from stand_ins import HEARD, TIMEOUT_MS, speech, verdict_of

HERE = Path(__file__).parent
BOT = HERE.parent / "bots" / "rehearsed.py"


class Voice(TTSService):
    """Says everything by the same recording."""

    def __init__(self) -> None:
        super().__init__(settings=TTSSettings(model="recording", voice="recording", language=None))

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        pcm, rate = speech(text)
        yield TTSAudioRawFrame(pcm, rate, 1, context_id=context_id)


class Ear(SegmentedSTTService):
    """Hears the same words in everything."""

    def __init__(self) -> None:
        super().__init__(ttfs_p99_latency=0.3, settings=STTSettings(model="ear", language=None))

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        yield TranscriptionFrame(HEARD, "bot", time_now_iso8601())


class Judge:
    """Judges by the words of the criterion; see `verdict_of()`."""

    def __init__(self) -> None:
        self._reply: list[str] = []

    def add_user_message(self, _: str) -> None:
        self._reply.clear()

    def add_assistant_message(self, text: str) -> None:
        self._reply.append(text)

    async def evaluate(self, criterion: str) -> JudgeVerdict:
        return self._verdict(" ".join(self._reply), criterion)

    async def evaluate_call(self, name: str, args: dict[str, Any], criterion: str) -> JudgeVerdict:
        return self._verdict(f"{name}({json.dumps(args)})", criterion)

    def _verdict(self, answer: str, criterion: str) -> JudgeVerdict:
        verdict = verdict_of(answer, criterion)
        word = verdict if isinstance(verdict, str) else "yes" if verdict else "no"
        return JudgeVerdict(verdict=word, reason="", raw_response=word)

    async def close(self) -> None:
        pass


async def run(path: Path, url: str) -> dict[str, Any]:
    """Run the scenarios of a file; return the result of each, by its full name."""
    found = {}
    params = EvalSessionParams(default_timeout_ms=TIMEOUT_MS)
    for scenario in EvalScenarioFile.load(path).scenarios:
        session = EvalScriptSession.from_scenario(
            scenario,
            url,
            params=params,
            judge=Judge(),
            user_tts=CachingTTSService(Voice(), cache_key="recording", use_cache=False)
            if scenario.user_speech is not None
            else None,
            bot_stt=Ear() if scenario.bot_audio else None,
        )
        result = await session.run()
        found[scenario.name] = {
            "verdict": "passed" if result.passed else "failed",
            "failures": [[f.turn_index, f.expectation_index, f.event_name, f.kind] for f in result.failures],
            "turns": [[turn.status, [[e.event_name, e.passed] for e in turn.expectations]] for turn in result.turns],
        }
        sys.stderr.write(f"{scenario.name}: {found[scenario.name]['verdict']}\n")
    return found


def main() -> None:
    """Run all files, or those that are named, and write the verdicts."""
    lifeline, _ = os.pipe()
    environment = {"LOGURU_LEVEL": "WARNING", **os.environ, "RTVI_BOT_ENDS_WITH_STDIN": "1"}
    with Path(os.devnull).open("wb") as log:
        bot = subprocess.Popen(
            [sys.executable, str(BOT)], stdin=lifeline, stdout=subprocess.PIPE, stderr=log, env=environment
        )
    assert bot.stdout is not None
    try:
        url = json.loads(bot.stdout.readline())["ws_url"]
        named = [HERE / name for name in sys.argv[1:]]
        verdicts: dict[str, Any] = {}
        for path in named or sorted(HERE.glob("*.yaml")):
            verdicts |= asyncio.run(run(path, url))
    finally:
        bot.kill()
    if not named:
        lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in verdicts.items()]
        (HERE / "verdicts.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
