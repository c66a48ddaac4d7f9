"""The weights on the device: every replica's own copies, and the ways to and from the host."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import CommGroupType
from ipu_conformance.emulator.poptorch.refusals import models as refusals
from ipu_conformance.emulator.poptorch.run import micro_batches, wrapping

Tensors = Dict[str, torch.Tensor]


class DeviceWeights:
    """Parameters and buffers by the names that the user's model gives them, a dict for each replica.

    The parameters of one group of replicas have the same values. A buffer that replicas may change for themselves comes
    back from replica 0.
    """

    def __init__(self, model: torch.nn.Module, replicas: int, training: bool) -> None:
        self._model = model
        self._count = replicas
        with wrapping.untouched():
            self.parameters: Tuple[str, ...] = tuple(name for name, _ in model.named_parameters())
            host = self._host()
            grad = {name for name, value in model.named_parameters() if value.requires_grad}
            self.trainable = tuple(name for name in self.parameters if training and name in grad)
            self.group_of: Dict[str, Tuple[int, ...]] = {}
            for name, value in model.named_parameters():
                grouping = wrapping.replica_grouping(value) if isinstance(value, wrapping.IpuParameter) else None
                if grouping is not None:
                    self.group_of[name] = groups(grouping[0], grouping[1], replicas)
            self.replicas: List[Tensors] = [self._device_copies(host, replica) for replica in range(replicas)]

    def _host(self) -> Tensors:
        held = dict([*self._model.named_parameters(), *self._model.named_buffers()])
        return {name: value.detach() for name, value in held.items()}

    def _device_copies(self, host: Tensors, replica: int) -> Tensors:
        tensors = {}
        for name, value in host.items():
            refusals.ZERO_SIZED(what=name, shape=tuple(value.shape))
            replica_value = self._of_replica(name, value, replica)
            tensor = replica_value.to(micro_batches.device_type(replica_value.dtype), copy=True)
            tensors[name] = tensor.requires_grad_(name in self.trainable)
        return tensors

    def _of_replica(self, name: str, value: torch.Tensor, replica: int) -> torch.Tensor:
        group = self.group_of.get(name)
        if group is None:
            return value
        if not value.dim() or value.shape[0] != max(group) + 1:
            raise Error(
                f"{name} has the shape {tuple(value.shape)}: the first dimension of a parameter with replicaGrouping "
                f"is the number of groups, which is {max(group) + 1}"
            )
        return value[group[replica]]

    @property
    def example(self) -> Mapping[str, torch.Tensor]:
        """The weights of one replica, for capturing the model."""
        return self.replicas[0]

    def upload(self, names: Optional[Iterable[str]] = None) -> None:
        """Give every replica the host's values, of all weights or of those that are named."""
        with wrapping.untouched(), torch.no_grad():
            host = self._host()
            if names is not None:
                host = {name: host[name] for name in names}
            host = _tensors(faults.at("weights.to_device", _arrays(host), device=_arrays(self.replicas[0], host)))
            for replica, weights in enumerate(self.replicas):
                for name, value in host.items():
                    weights[name].copy_(self._of_replica(name, value, replica))

    def download(self) -> None:
        """Give the host the values of the device."""
        with wrapping.untouched(), torch.no_grad():
            host = self._host()
            device = {name: self._for_host(name) for name in host}
            device = _tensors(faults.at("weights.to_host", _arrays(device), host=_arrays(host)))
            for name, value in device.items():
                host[name].copy_(value)

    def _for_host(self, name: str) -> torch.Tensor:
        group = self.group_of.get(name)
        if group is None:
            return self.replicas[0][name].detach()
        return torch.stack([self.replicas[group.index(number)][name].detach() for number in range(max(group) + 1)])


def groups(kind: CommGroupType, size: int, replicas: int) -> Tuple[int, ...]:
    """The number of the group that each replica belongs to."""
    if kind == CommGroupType.All:
        return (0,) * replicas
    if kind == CommGroupType.NoGrouping:
        return tuple(range(replicas))
    if size < 1 or replicas % size:
        raise Error(f"groups of {size} replicas were asked for, and there are {replicas}: use a divisor of them")
    if kind == CommGroupType.Consecutive:
        return tuple(replica // size for replica in range(replicas))
    return tuple(replica % (replicas // size) for replica in range(replicas))


def _arrays(tensors: Mapping[str, torch.Tensor], names: Optional[Iterable[str]] = None) -> Dict[str, Any]:
    """The memory of the tensors, or of those that are named, as arrays; NumPy has no bfloat16."""
    held = {name: tensors[name].detach() for name in (tensors if names is None else names)}
    return {name: (value.float() if value.dtype == torch.bfloat16 else value).numpy() for name, value in held.items()}


def _tensors(arrays: Mapping[str, Any]) -> Tensors:
    return {name: torch.as_tensor(array) for name, array in arrays.items()}
