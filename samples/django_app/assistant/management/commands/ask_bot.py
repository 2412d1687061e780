"""`manage.py ask_bot`."""

import contextlib
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from rtvi_sync import RTVIError
from rtvi_sync.testing import EmbeddedBot

from ...bot import ask


class Command(BaseCommand):
    """The command that asks as the page does."""

    help = "Ask the bot and print its answer. Without --url and RTVI_URL it is the embedded bot, which repeats it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("question")
        parser.add_argument("--url", default=settings.BOT_URL, help="of the bot; default: RTVI_URL")

    def handle(self, *_: Any, question: str, url: str, **__: Any) -> None:
        """Ask, and print the answer."""
        with contextlib.ExitStack() as stack:
            try:
                answer = ask(question, url or stack.enter_context(EmbeddedBot()).ws_url, settings.BOT_SECONDS)
            except RTVIError as error:
                raise CommandError(printable(str(error))) from error
        self.stdout.write(f"{printable(answer.text)} ({answer.seconds:.2f} s)")


def printable(text: str) -> str:
    """Return a bot's words without control characters, which a terminal would obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
