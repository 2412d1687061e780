"""Mutants of the decoding of payloads."""

from tools.mutants import Module, Mutant

MODULE = Module(
    "rtvi_sync/protocol/decoding.py",
    ("tests/protocol/test_decoding.py", "tests/protocol/test_payload_forms.py"),
    (
        Mutant(
            "A field without a default may be null.",
            "if self.default is attrs.NOTHING:",
            "if False:",
        ),
        Mutant(
            "Payloads share one empty object.",
            "return {} if self.default is dict else self.default",
            "return _variants if self.default is dict else self.default",
        ),
        Mutant(
            "Any type is taken for any field.",
            "if self.kinds and type(value) not in self.kinds:",
            "if False:",
        ),
        Mutant("True counts as a number.", "type(value) not in self.kinds:", "not isinstance(value, self.kinds):"),
        Mutant(
            "An integer is no float.",
            "return (float, int), None",
            "return (float,), None",
        ),
        Mutant(
            "The path of an error lacks its outer fields.",
            'error.path = f".{name}{error.path}"',
            'error.path = f".{name}"',
        ),
        Mutant(
            "The path of an error in a list lacks its inner fields.",
            'error.path = f"[{index}]{error.path}"',
            'error.path = f"[{index}]"',
        ),
        Mutant(
            "A null hides the field's other name.",
            "if data.get(self.name) is None:",
            "if self.name not in data:",
        ),
        Mutant(
            "A field in any shape is an error if its shape is another.",
            "        if type(data) not in kinds:\n            return default\n",
            "",
        ),
        Mutant(
            "A field in any shape is an error if a part of it is of another type.",
            "        except MismatchError:\n            return default\n",
            "        except KeyError:\n            return default\n",
        ),
        Mutant(
            "Unknown fields are dropped from messages that have all known ones.",
            "if known < len(data) and",
            "if known < min(len(data), len(plan)) and",
        ),
        Mutant(
            "Unknown fields are dropped from messages that lack a known one.",
            "if known < len(data) and",
            "if len(plan) == known < len(data) and",
        ),
        Mutant(
            "The other name of a field is an unknown one.",
            "for name in (step.name, step.name_in(data))}",
            "for name in (step.name,)}",
        ),
        Mutant(
            "The items of a list may have any type.",
            "if kinds and type(item) not in kinds:",
            "if False:",
        ),
        Mutant(
            "An unknown variant is an error.",
            "decoders.get(value, base) if type(value) is str",
            "decoders[value] if type(value) is str",
        ),
    ),
)
