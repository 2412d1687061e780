"""Classes of protobuf messages, built from descriptions of their fields.

They have their own descriptor pool. Generated code would register ``frames.proto`` in the process-wide pool, which may
hold a server framework's copy already, and would require one runtime version of protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

__all__ = ["DecodeError", "build"]

_Field: Final = descriptor_pb2.FieldDescriptorProto


def build(package: str, fields: Mapping[str, str], name: str, kinds: Mapping[str, str]) -> Any:
    """Return the class of a message with a oneof of several other messages.

    Args:
        package: the package of all of them.
        fields: the others by name: their fields in the order of their numbers, from 1, such as "id:uint64 pts?:uint64";
            "?" marks an optional field.
        name: the name of the message.
        kinds: its fields in the order of their numbers, each with the name of its message.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_describe(package, fields, name, kinds).SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


def _describe(
    package: str, fields: Mapping[str, str], name: str, kinds: Mapping[str, str]
) -> descriptor_pb2.FileDescriptorProto:
    """Return the descriptor that a compiler would make from the ``.proto`` file."""
    file = descriptor_pb2.FileDescriptorProto(name="frames.proto", package=package, syntax="proto3")
    for message_name, facts in fields.items():
        message = file.message_type.add(name=message_name)
        for number, fact in enumerate(facts.split(), start=1):
            field_name, type_name = fact.split(":")
            field = message.field.add(
                name=field_name.rstrip("?"),
                number=number,
                label=_Field.LABEL_OPTIONAL,
                type=_Field.Type.Value(f"TYPE_{type_name.upper()}"),
            )
            if field_name.endswith("?"):
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    frame = file.message_type.add(name=name)
    frame.oneof_decl.add(name="kind")
    for number, (kind, message_name) in enumerate(kinds.items(), start=1):
        frame.field.add(
            name=kind,
            number=number,
            label=_Field.LABEL_OPTIONAL,
            type=_Field.TYPE_MESSAGE,
            type_name=f".{package}.{message_name}",
            oneof_index=0,
        )
    return file
