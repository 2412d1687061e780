"""Mutants of the protobuf wire."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/frames.py",
    ("tests/protocol/test_frames.py",),
    (
        Mutant("A length of 127 takes two bytes.", "while number > 0x7F:", "while number >= 0x7F:"),
        Mutant("A byte of a length has eight bits.", "number >>= 7", "number >>= 8"),
        Mutant(
            "An empty text has a field.",
            'field = _DATA_TAG + _varint(text_bytes) if text_bytes else b""',
            "field = _DATA_TAG + _varint(text_bytes)",
        ),
        Mutant(
            "A message with long heads is not seen at a glance.",
            "range(max(0, frame_bytes - 12), frame_bytes)",
            "range(max(0, frame_bytes - 4), frame_bytes)",
        ),
        Mutant(
            "Any frame of the right size is seen as a message.",
            "if head is None or not data.startswith(head):",
            "if head is None:",
        ),
        Mutant(
            "A message that is not UTF-8 raises UnicodeDecodeError.",
            "    except UnicodeDecodeError:\n        return None\n",
            "    except KeyError:\n        return None\n",
        ),
        Mutant(
            "A frame without a time has the time 0.",
            'pts=audio.pts if audio.HasField("pts") else None,',
            "pts=audio.pts,",
        ),
        Mutant(
            "Audio without a time has one on the wire.",
            'if value is None and name == "pts":',
            "if False:",
        ),
        Mutant(
            "Bytes that are no frame raise protobuf's own error.",
            "except (decode_error, ValueError, RecursionError) as error:",
            "except (ValueError, RecursionError) as error:",
        ),
    ),
)
