"""The messages and enumerations that the vendor's TensorFlow shares with its compiler, in the vendor's modules.

Programs name events, and members of enumerations. What describes a configuration to the compiler is not here.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.internal import enum_type_wrapper  # type: ignore[import-untyped]

from ipu_conformance.emulator.tensorflow.legacy.plugin.poplar import generated

PLUGIN = "xla.poplarplugin"
EVENT = "IpuTraceEvent"
TYPES = ("COMPILE_BEGIN", "COMPILE_END", "HOST_TO_DEVICE_TRANSFER", "DEVICE_TO_HOST_TRANSFER", "LOAD_ENGINE", "EXECUTE")
MESSAGES: Dict[str, Dict[str, Sequence[str]]] = {
    "option_flag": {"PoplarOptionFlag": ("string option 1", "string value 2")},
    "trace": {
        "IpuTraceCompileBeginEvent": ("bytes deprecated_1 1", "bytes module_name 2"),
        "IpuTraceCompileEndEvent": (
            "int64 duration 1", "bytes module_name 2", "bytes tensor_map 3", "bytes instruction_info 4",
        ),
        "IpuTraceDataTransferEvent": ("bytes data_transfer 1",),
        "IpuTraceLoadEngineEvent": ("bytes module_name 1",),
        "IpuTraceExecuteEvent": ("bytes activity_trace 1", "bytes module_name 2"),
        EVENT: (
            "double timestamp 1", "int32 ordinal 2", "Type type 3", "IpuTraceCompileBeginEvent compile_begin 5",
            "IpuTraceCompileEndEvent compile_end 6", "IpuTraceDataTransferEvent data_transfer 7",
            "IpuTraceLoadEngineEvent load_engine 8", "IpuTraceExecuteEvent execute 9",
        ),
    },
}  # fmt: skip
"""The fields of each message by the vendor's file: type, name and number."""
ENUMERATIONS: Dict[str, Dict[str, Sequence[str]]] = {
    "threestate": {"ThreeState": ("THREESTATE_OFF", "THREESTATE_ON", "THREESTATE_UNDEFINED")},
    "config": {
        "IpuSelectionOrder": ("AUTO", "ZIGZAG", "SNAKE", "HOOF"),
        "IpuDeviceConnectionType": ("ALWAYS", "ON_DEMAND", "NEVER", "PRE_COMPILE"),
        "IpuExecutionProfileType": ("NO_PROFILE", "DEVICE_PROFILE", "IPU_PROFILE", "TILE_PROFILE"),
        "IpuSchedulingAlgorithm": ("CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH"),
        "SyntheticDataCategory": ("Seed", "Infeed", "Outfeed", "HostEmbedding", "Parameters", "Unknown"),
        "StochasticRoundingBehaviour": (
            "StochasticRounding_Off", "StochasticRounding_On", "StochasticRounding_ReplicaIdenticalOnly",
        ),
    },
}  # fmt: skip
"""The members of each enumeration by the vendor's file, numbered from 0."""
_POOL = descriptor_pool.DescriptorPool()
_FIELD = descriptor_pb2.FieldDescriptorProto


def _generate(file: str) -> Any:
    """The module of one of the vendor's files."""
    package = "tensorflow" if file == "trace" else PLUGIN
    described = descriptor_pb2.FileDescriptorProto(name=f"{file}.proto", package=package, syntax="proto3")
    for enumeration, names in ENUMERATIONS.get(file, {}).items():
        _describe_enumeration(described.enum_type.add(name=enumeration), names)
    for message, fields in MESSAGES.get(file, {}).items():
        own = described.message_type.add(name=message)
        if message == EVENT:
            _describe_enumeration(own.enum_type.add(name="Type"), TYPES)
            own.oneof_decl.add(name="msg")
        for field in fields:
            _describe_field(own, f".{package}", *field.split())
    _POOL.AddSerializedFile(described.SerializeToString())
    members: Dict[str, Any] = {}
    for enumeration in described.enum_type:
        wrapped = enum_type_wrapper.EnumTypeWrapper(_POOL.FindEnumTypeByName(f"{package}.{enumeration.name}"))
        members.update({enumeration.name: wrapped}, **dict(wrapped.items()))
    for message in described.message_type:
        members[message.name] = message_factory.GetMessageClass(
            _POOL.FindMessageTypeByName(f"{package}.{message.name}")
        )
    return generated.module(f"{__name__}.{file}_pb2", members, generated.missing)


def _describe_enumeration(described: Any, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        described.value.add(name=name, number=number)


def _describe_field(message: Any, package: str, kind: str, name: str, number: str) -> None:
    field = message.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if kind == "Type":
        field.type, field.type_name = _FIELD.TYPE_ENUM, f"{package}.{message.name}.Type"
    elif kind.startswith("Ipu"):
        field.type, field.type_name, field.oneof_index = _FIELD.TYPE_MESSAGE, f"{package}.{kind}", 0
    else:
        field.type = getattr(_FIELD, f"TYPE_{kind.upper()}")


globals().update({f"{file}_pb2": _generate(file) for file in {**MESSAGES, **ENUMERATIONS}})
