"""`Frame`, the class that a protobuf compiler makes of the bots' `frames.proto`, as far as the peers need it."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Message -> its fields: name, number, type. The fields of `Frame` are the alternatives of a oneof.
_FACTS: Final = {
    "AudioRawFrame": [("audio", 3, "BYTES"), ("sample_rate", 4, "UINT32"), ("num_channels", 5, "UINT32")],
    "MessageFrame": [("data", 1, "STRING")],
    "Frame": [("audio", 2, ".pipecat.AudioRawFrame"), ("message", 4, ".pipecat.MessageFrame")],
}


def _build() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="frames.proto", package="pipecat", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto.Type
    for message_name, fields in _FACTS.items():
        message = file.message_type.add(name=message_name)
        if message_name == "Frame":
            message.oneof_decl.add(name="frame")
        for name, number, type_ in fields:
            field = message.field.add(name=name, number=number, label=1)
            if message_name == "Frame":
                field.type, field.type_name, field.oneof_index = kinds.Value("TYPE_MESSAGE"), type_, 0
            else:
                field.type = kinds.Value(f"TYPE_{type_}")
    # Not the process-wide pool: a library under measurement may have its own copy there.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pipecat.Frame"))


Frame: Final[Any] = _build()
