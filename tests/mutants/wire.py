"""Mutants of the protobuf wire."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/wire.py",
    ("tests/protocol/test_wire.py",),
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
            '"num_channels": 0, "pts": None}',
            '"num_channels": 0, "pts": 0}',
        ),
        Mutant(
            "A number that breaks off raises IndexError.",
            "except (ValueError, IndexError) as error:",
            "except ValueError as error:",
        ),
        Mutant("A frame of two kinds has the fields of both.", "if kind != before:", "if before is None:"),
        Mutant("A number of 32 bits may have more.", "value & (1 << _BITS[name]) - 1", "value"),
        Mutant("A field that breaks off is read.", "if position > end:", "if False:"),
        Mutant("A tag may have ten bytes.", "_LONGEST_TAG = 10, 5", "_LONGEST_TAG = 10, 10"),
        Mutant("A message may have any number of fields.", "_MAX_FIELDS: Final = 32", "_MAX_FIELDS: Final = 10**9"),
    ),
)
