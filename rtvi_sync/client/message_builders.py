"""Payloads of outbound messages: files, DTMF, UI jobs."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from ..errors import MessageTooLargeError
from ..messages import RTVIMessage
from ..protocol.dialects import supports
from ..protocol.record import Record
from ..protocol.validation import BOOL, Rule, instance_of

FileLike: TypeAlias = bytes | bytearray | memoryview | str | os.PathLike[str]

#: The forms of a file that can be sent.
FILE: Final = instance_of("bytes, a path or a URL", bytes, bytearray, memoryview, str, os.PathLike)
#: The keys of a telephone.
KEYS: Final = Rule(
    "a string of DTMF keys (0-9, * and #) such as '123#'",
    lambda keys: isinstance(keys, str),
    lambda keys: re.fullmatch(r"[0-9*#]+", keys) is not None,
)

#: The limit of Pipecat's runner. The whole file is in memory while it is sent.
MAX_UPLOAD_BYTES: Final = 50 * 1024 * 1024

# "https://", "s3://"; the name of a file may contain a colon. In a "data:" URL the type, if any, precedes its
# parameters and content (RFC 2397).
_URL = r"(?i:[a-z][a-z0-9+.-]+://|(data:)([^;,]*))"


@attrs.frozen(eq=False, repr=False)
class LoadedFile(Record):
    """A file for the bot's language model.

    Attributes:
        format: MIME type.
        name: The name for the bot, or None.
        content: The bytes. None: the bot reads them from `url`.
    """

    format: str
    name: str | None
    content: bytes | None = attrs.field(default=None, repr=False)
    url: str = attrs.field(default="", repr=False)

    def as_message(self, limit_bytes: int) -> dict[str, Any]:
        """Return the `file` of a `send-file` message.

        Raises:
            MessageTooLargeError: The file is larger than a message may be.
        """
        source = {"type": "url", "url": self.url}
        if self.content is not None:
            _check_size(len(self.content), limit_bytes)
            source = {"type": "bytes", "bytes": base64.b64encode(self.content).decode("ascii")}
        return {"format": self.format, **({"name": self.name} if self.name else {}), "source": source}


def load_file(file: FileLike, format: str | None, name: str | None, limit_bytes: int) -> LoadedFile:
    """Return a file. Read it if it is a file of this machine.

    Args:
        file: Content, a path, or a URL that the bot can read.
        format: MIME type. None: the type of the file's name or of a "data:" URL, else "application/octet-stream".
        name: The file's name for the bot. None: the name in the path or URL, if any.
        limit_bytes: A larger file is not read, because it cannot be sent.

    Raises:
        OSError: The file cannot be read.
        MessageTooLargeError: The file is larger than `limit_bytes`.
    """
    kind, url = format or "", ""
    content: bytes | None = None
    if isinstance(file, str) and (match := re.match(_URL, file)):
        url = file
        if match[1]:
            kind = kind or match[2]
        else:
            name = name or file.partition("?")[0].rpartition("/")[2] or None
    else:
        if isinstance(file, (str, os.PathLike)):
            path = Path(file)
            _check_size(path.stat().st_size, limit_bytes)
            with path.open("rb") as opened:  # a file that grows, or is a device, reports a smaller size
                name, content = name or path.name, opened.read(limit_bytes + 1)
        else:
            content = bytes(file)
        _check_size(len(content), limit_bytes)
    import mimetypes  # imported late: it reads the system's tables

    kind = kind or mimetypes.guess_type(name or "")[0] or "application/octet-stream"
    return LoadedFile(kind, name, content, url)


def _check_size(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        most = "can be uploaded" if limit_bytes == MAX_UPLOAD_BYTES else "fit into a message"
        advice = (
            ""
            if limit_bytes == MAX_UPLOAD_BYTES
            else ", or connect by the http:// URL of a server that takes uploads (of Pipecat's runner: -u FOLDER)"
        )
        raise MessageTooLargeError(
            f"The file has {size_bytes} bytes, and at most {limit_bytes} {most}. Put it where the bot can read it, and "
            f"send its URL{advice}."
        )


def dtmf_messages(keys: str, bot_version: str | None) -> Iterator[RTVIMessage]:
    """Return the messages that send DTMF keys: one for all keys, or one each for older bots."""
    if supports("dtmf.buttons", bot_version):
        yield RTVIMessage("dtmf", {"buttons": list(keys)})
    else:
        for key in keys:
            yield RTVIMessage("dtmf", {"button": key})


def cancel_message(job_id: str, reason: str | None, bot_version: str | None) -> RTVIMessage:
    """Return the message that cancels a group of jobs. Bots of RTVI 1.3 call it a task."""
    was_task = supports("ui-cancel-task", bot_version) and not supports("ui-cancel-job-group", bot_version)
    type_, key = ("ui-cancel-task", "task_id") if was_task else ("ui-cancel-job-group", "job_id")
    return RTVIMessage(type_, {key: job_id} if reason is None else {key: job_id, "reason": reason})


def run_options(run_immediately: bool, audio_response: bool, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the `options` of messages that the bot may answer."""
    BOOL.check(run_immediately=run_immediately, audio_response=audio_response)
    options = {"run_immediately": run_immediately, "audio_response": audio_response}
    return {**options, "custom_options": dict(more)} if more else options


def text_messages(text: str, *, audio_response: bool, llm_service: str) -> list[RTVIMessage]:
    """Return the messages that can ask a text question. The first one that the bot knows should be sent."""
    message = {"role": "user", "content": text}
    arguments = [{"name": "messages", "value": [message]}, {"name": "run_immediately", "value": True}]
    ways = [
        RTVIMessage("send-text", {"content": text, "options": run_options(True, audio_response)}),
        RTVIMessage("append-to-context", {**message, "run_immediately": True}),
        RTVIMessage("action", {"service": llm_service, "action": "append_to_messages", "arguments": arguments}),
    ]
    return ways if audio_response else ways[:1]  # the others cannot ask for text only
