"""Mutants of the payloads of outbound messages."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/client/message_builders.py",
    ("tests/client/test_turns.py", "tests/conversation/test_ask.py"),
    (
        Mutant(
            "A question for text only may be asked aloud.",
            "return ways if audio_response else ways[:1]",
            "return ways",
        ),
    ),
)
