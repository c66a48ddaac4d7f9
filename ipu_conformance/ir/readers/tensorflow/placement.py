"""The placement of a TensorFlow node: the IPU and the stage that its device and attributes stand for."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional

from ipu_conformance.ir.readers.tensorflow.messages import GRAPH, Node
from ipu_conformance.ir.tensor import IRError

SHARDING = "_XlaSharding"
STAGE = "_ipu_pipeline_stage"
_DEVICE = re.compile(r"/device:IPU:(\d{1,6})(?!\d)", re.IGNORECASE)
_ONE_SHARD = 1
_MAXIMAL = 1


class Placement(NamedTuple):
    """An IPU of a replica and a stage; None where neither is given."""

    ipu: Optional[int] = None
    stage: Optional[int] = None


def placement(node: Node, default: Placement) -> Placement:
    """Where a node is placed: its shard, else its device, else where the function is called that it is a part of."""
    ipu = shard(node.attributes.get(SHARDING))
    device = _DEVICE.search(node.device)
    if ipu is None and device:
        ipu = int(device[1])
    stage = node.attributes.get(STAGE)
    if type(stage) is not int or not 0 <= stage < 2**31:
        stage = default.stage
    return Placement(default.ipu if ipu is None else ipu, stage)


def shard(value: Any) -> Optional[int]:
    """The IPU of a sharding: the emulator's short form, or XLA's OpSharding on one device; several are none."""
    if not isinstance(value, bytes) or len(value) < 2:
        return None
    if value[0] == _ONE_SHARD and len(value) == 2:
        return value[1]
    try:
        sharding = GRAPH.parse("OpSharding", value)
    except IRError:
        return None
    devices = sharding.tile_assignment_devices
    return devices[0] if sharding.type == _MAXIMAL and len(devices) == 1 and 0 <= devices[0] < 2**31 else None
