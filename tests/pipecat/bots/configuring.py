"""A bot's configuration and actions, in the way of RTVI 0.3: for Pipecat 0.0.73, and for 0.0.108, which still has them.

Pipecat itself has no service and no action. These are modelled on the ones that public bots of that time had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Body, WebSocket
from pipecat.frames.frames import Frame, TTSSpeakFrame
from pipecat.processors.frameworks.rtvi import (
    RTVIAction,
    RTVIActionArgument,
    RTVIConfig,
    RTVIProcessor,
    RTVIService,
    RTVIServiceConfig,
    RTVIServiceOption,
    RTVIServiceOptionConfig,
)
from serving import Host

# Service -> option -> type
OPTIONS = {
    "vad": {"params": "object"},
    "tts": {"voice": "string"},
    "llm": {"model": "string", "initial_messages": "array", "run_on_config": "bool"},
    # Not in the initial config: it can be updated, but the config never shows it.
    "stt": {"language": "string"},
}
CONFIG = [
    {"service": "vad", "options": [{"name": "params", "value": {"stop_secs": 0.2}}]},
    {"service": "tts", "options": [{"name": "voice", "value": "tone"}]},
    {
        "service": "llm",
        "options": [
            {"name": "model", "value": "repeating-llm"},
            {"name": "initial_messages", "value": [{"role": "system", "content": "You repeat what you hear."}]},
            {"name": "run_on_config", "value": False},
        ],
    },
]

_NO_BODY = Body(default={})

Arguments = dict[str, Any]
Action = Callable[[Arguments], Awaitable[Any]]


class Configuration:
    """One session's services and actions.

    Args:
        config: the initial config, as the connect request has it; None: `CONFIG`.
        context: the context of the language model, in OpenAI's form.
        context_frame: makes the frame that has the language model answer the context.
        show: other things that the bot can show, by name.
    """

    def __init__(
        self,
        config: list[Any] | None,
        context: Any,
        context_frame: Callable[[Any], Frame],
        show: Callable[[str], Awaitable[None]],
    ) -> None:
        self._context = context
        self._context_frame = context_frame
        self._show = show
        self._run_on_config = False
        services = [RTVIServiceConfig.model_validate(service) for service in (CONFIG if config is None else config)]
        self.rtvi = RTVIProcessor(config=RTVIConfig(config=services))
        for service, options in OPTIONS.items():
            described = [RTVIServiceOption(name=name, type=kind, handler=self._set) for name, kind in options.items()]
            self.rtvi.register_service(RTVIService(name=service, options=described))
        self._add_actions()

    async def run(self) -> None:
        """Have the language model answer."""
        await self.rtvi.push_frame(self._context_frame(self._context))

    async def _set(self, rtvi: RTVIProcessor, service: str, option: RTVIServiceOptionConfig) -> None:
        """Set an option; the processor itself keeps the value."""
        if option.name == "initial_messages":
            self._context.set_messages(option.value)
        if option.name == "run_on_config" and option.value:
            await self.run()

    def _add_actions(self) -> None:
        self._add("llm:get_context", self._get_context, "array")
        self._add("llm:set_context", self._set_context, "bool", messages="array", interrupt="bool")
        self._add("llm:append_to_messages", self._append, "bool", messages="array", run_immediately="bool")
        self._add("llm:run", self._run, "bool", interrupt="bool")
        self._add("tts:say", self._say, "bool", text="string", interrupt="bool")
        self._add("tts:interrupt", self._interrupt, "bool")
        self._add("bot:add", self._add_up, "number", a="number", b="number")
        self._add("bot:sleep", self._sleep, "bool", seconds="number")
        self._add("bot:show", self._show_scene, "bool", scene="string")
        self._add("bot:fail", self._fail, "bool")
        self._add("bot:nothing", self._nothing, "bool")

    def _add(self, name: str, act: Action, result: Any, **arguments: Any) -> None:
        async def handle(_rtvi: RTVIProcessor, _service: str, given: Arguments) -> Any:
            return await act(given)

        service, action = name.split(":")
        described = [RTVIActionArgument(name=name, type=kind) for name, kind in arguments.items()]
        self.rtvi.register_action(
            RTVIAction(service=service, action=action, arguments=described, result=result, handler=handle)
        )

    async def _get_context(self, _: Arguments) -> list[Any]:
        return list(self._context.get_messages())

    async def _set_context(self, given: Arguments) -> bool:
        await self._maybe_interrupt(given)
        self._context.set_messages(given["messages"])
        return True

    async def _append(self, given: Arguments) -> bool:
        self._context.add_messages(given["messages"])
        if given.get("run_immediately"):
            await self.run()
        return True

    async def _run(self, given: Arguments) -> bool:
        await self._maybe_interrupt(given)
        await self.run()
        return True

    async def _say(self, given: Arguments) -> bool:
        await self._maybe_interrupt(given)
        await self.rtvi.push_frame(TTSSpeakFrame(given["text"]))
        return True

    async def _maybe_interrupt(self, given: Arguments) -> None:
        if given.get("interrupt"):
            await self.rtvi.interrupt_bot()

    async def _interrupt(self, _: Arguments) -> bool:
        await self.rtvi.interrupt_bot()
        return True

    async def _add_up(self, given: Arguments) -> float:
        return given["a"] + given["b"]

    async def _sleep(self, given: Arguments) -> bool:
        await asyncio.sleep(given["seconds"])
        return True

    async def _show_scene(self, given: Arguments) -> bool:
        await self._show(given["scene"])
        return True

    async def _fail(self, _: Arguments) -> bool:
        raise ValueError("an action that fails")

    async def _nothing(self, _: Arguments) -> None:
        """Return nothing, where Pipecat's actions must return something."""


def add_configured_bot(host: Host, bot: Callable[[WebSocket, list[Any] | None], Awaitable[None]]) -> None:
    """Add a bot, and the endpoint that keeps the config of a connect request for it."""
    configs: list[list[Any]] = []

    @host.app.post("/connect")
    async def connect(body: dict[str, Any] = _NO_BODY) -> dict[str, str]:
        if not body.get("config"):
            return {"ws_url": host.ws_url}
        configs.append(body["config"])
        return {"ws_url": f"{host.ws_url}?config={len(configs) - 1}"}

    @host.app.websocket("/ws")
    async def converse(websocket: WebSocket) -> None:
        await websocket.accept()
        key = websocket.query_params.get("config")
        await bot(websocket, configs[int(key)] if key is not None else None)
