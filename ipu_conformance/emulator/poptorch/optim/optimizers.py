"""``poptorch.optim``: torch's optimizers with what a device adds, and LAMB.

An argument that is passed is a variable of the compiled program, one that is left out a constant, until
``variable_attrs`` is told otherwise.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from ipu_conformance.emulator.poptorch.optim import read, state
from ipu_conformance.emulator.poptorch.optim.kernels import KERNELS, hyper_parameters
from ipu_conformance.emulator.poptorch.options.diagnostics import logger
from ipu_conformance.emulator.poptorch.refusals import optim as refusals

Params = Iterable[Any]
Number = Union[int, float]
_TYPES = (torch.float16, torch.float32)
IPU_STATE, IPU_PARAM = "ipu_state", "ipu_param"


class VariableAttributes:
    """Which attributes of an optimizer are variables of the compiled program and which are constants in it."""

    def __init__(self, variable_attributes: List[str], allowed_attributes: List[str]) -> None:
        self._variable = list(variable_attributes)
        self._allowed = tuple(allowed_attributes)

    def isConstant(self, attr: str) -> bool:
        """Whether the attribute is compiled in."""
        return attr not in self._variable

    def markAsConstant(self, attr: str) -> None:
        """Compile the attribute in."""
        refusals.UNKNOWN_ATTRIBUTE(name=attr, known=self._allowed)
        self._variable = [name for name in self._variable if name != attr]

    def markAsVariable(self, attr: str) -> None:
        """Allow the attribute to change after compiling."""
        refusals.UNKNOWN_ATTRIBUTE(name=attr, known=self._allowed)
        self._variable.append(attr)


class Optimizer:
    """What every optimizer of this module adds to torch's: variable attributes and a state on the device."""

    _ipu_kind = ""
    _ipu_attributes = ("variable_attrs",)

    variable_attrs: VariableAttributes
    param_groups: List[Dict[str, Any]]
    _on_device: Optional[List[state.State]]
    _on_host: Optional[state.Tensors]
    _parameters: Optional[state.Tensors]
    """The numbers of a state that was loaded, until the device has this optimizer's own."""

    def __init__(self) -> None:
        self.variable_attrs = VariableAttributes([], [])

    def has_state(self) -> bool:
        """Whether there is a state of the device, on it or on the host."""
        return self._on_device is not None or self._on_host is not None

    def get_state_dict(self) -> Dict[str, Any]:
        """What ``state_dict`` gives."""
        return self.state_dict()

    def set_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the device's part alone, now or when the device is attached."""
        refusals.STATE_OF_THE_HOST(missing=[name for name in (IPU_STATE, IPU_PARAM) if name not in state])
        tensors, numbers = state[IPU_STATE], state[IPU_PARAM]
        if tensors is not None:
            self._on_host = {name: value.detach().clone() for name, value in tensors.items()}
            self._upload()
        if numbers is not None:
            self._parameters = {name: torch.as_tensor(value).clone() for name, value in numbers.items()}

    def _begin(self, arguments: Mapping[str, Any]) -> None:
        """Keep what belongs to the device and hand the rest to torch's constructor.

        ``arguments`` are the locals of the vendor's constructor; None stands for an argument that was left out.
        """
        params = arguments["params"]
        device_defaults = read.WHOLE[self._ipu_kind]
        passed = {
            name: value for name, value in arguments.items() if name not in ("self", "params") and value is not None
        }
        on_device = {name: passed.pop(name) for name in list(passed) if name in device_defaults}
        _check_device_arguments(on_device)
        for name, default in device_defaults.items():
            setattr(self, name, on_device.get(name, default))
        known = {**read.ATTRIBUTES[self._ipu_kind], **device_defaults}
        allowed = [name for name in known if name not in read.ALWAYS_CONSTANT]
        variable = [name for name in allowed if name in passed or name in on_device]
        self.variable_attrs = VariableAttributes(variable, allowed)
        self._on_device, self._on_host, self._parameters = None, None, None
        self._compiled = False
        super().__init__(params, **passed)  # type: ignore[call-arg]
        read.read(self, {})  # refuses what the device does not have

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Add a group; a value that it brings along is a variable from then on."""
        for name in param_group:
            if name in self.variable_attrs._allowed and self.variable_attrs.isConstant(name):
                self.variable_attrs.markAsVariable(name)
        super().add_param_group(param_group)  # type: ignore[misc]

    def state_dict(self) -> Dict[str, Any]:
        """What torch keeps, with the device's state and parameters; both are None before compiling."""
        result = dict(super().state_dict())  # type: ignore[misc]
        tensors = self._on_host if self._on_device is None else state.named(self._ipu_kind, self._on_device[0])
        result[IPU_STATE] = tensors
        result[IPU_PARAM] = state.parameters(read.read(self, {})) if self._compiled else self._parameters
        return result

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave; the device's part goes to the device, now or when it is attached."""
        on_host = {name: value for name, value in state.items() if name not in (IPU_STATE, IPU_PARAM)}
        super().load_state_dict(on_host)  # type: ignore[misc]
        self.set_state_dict(state)

    def _ipu_state_to_device(self, states: List[state.State]) -> None:
        """The device, with a state for each replica, has been attached."""
        self._on_device, self._compiled = states, True
        self._upload()

    def _ipu_state_to_host(self, states: List[state.State]) -> None:
        """The device is about to be detached."""
        self._on_host, self._on_device = state.named(self._ipu_kind, states[0]), None

    def _upload(self) -> None:
        """Give every replica the host's state; what the host lacks stays as it is on the device."""
        if self._on_host is None or self._on_device is None:
            return
        for replica in self._on_device:
            for name, tensors in state.by_weight(self._ipu_kind, self._on_host).items():
                replica.setdefault(name, {}).update(tensors)
        self._on_host = None

    def __getstate__(self) -> Dict[str, Any]:
        whole = {name: getattr(self, name) for name in read.WHOLE[self._ipu_kind]}
        return {
            **super().__getstate__(),  # type: ignore[misc]
            **whole,
            "variable_attrs": self.variable_attrs,
            "_on_host": self.state_dict()[IPU_STATE],
            "_on_device": None,
            "_parameters": self._parameters,
            "_compiled": False,
        }


def _check_device_arguments(values: Mapping[str, Any]) -> None:
    """Refuse values that the device cannot use."""
    for name, value in values.items():
        if name.endswith("accum_type"):
            refusals.ACCUMULATION_TYPE(name=name, value=value, types=_TYPES)
        elif name in ("use_combined_accum", "bias_correction", "use_tf_variant"):
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}: it must be True or False")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0 or math.isnan(value):
            raise ValueError(f"{name} is {value!r}: it must be a number above 0")


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent."""

    _ipu_kind = "sgd"

    def __init__(
        self,
        params: Params,
        lr: Number,
        momentum: Optional[Number] = None,
        dampening: Optional[Number] = None,
        weight_decay: Optional[Number] = None,
        nesterov: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[Number] = None,
        velocity_scaling: Optional[Number] = None,
        use_combined_accum: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        velocity_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[Number] = None,
    ) -> None:
        self._begin(locals())
        if self.use_combined_accum:
            self.defaults["velocity_scaling"] = self.velocity_scaling
            for group in self.param_groups:
                group.setdefault("velocity_scaling", self.velocity_scaling)
        elif velocity_scaling is not None:
            logger.warning("velocity_scaling is ignored with separate accumulators: use use_combined_accum=True")


class Adam(Optimizer, torch.optim.Adam):
    """Adam, its weight decay part of the gradient."""

    _ipu_kind = "adam"

    def __init__(
        self,
        params: Params,
        lr: Optional[Number] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[Number] = None,
        weight_decay: Optional[Number] = None,
        amsgrad: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        capturable: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        fused: Optional[bool] = None,
        loss_scaling: Optional[Number] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[Number] = None,
    ) -> None:
        self._begin(locals())


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with weight decay of its own; ``bias_correction`` is accepted and without effect, as on the device."""

    _ipu_kind = "adamw"

    def __init__(
        self,
        params: Params,
        lr: Optional[Number] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[Number] = None,
        weight_decay: Optional[Number] = None,
        amsgrad: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        capturable: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        fused: Optional[bool] = None,
        loss_scaling: Optional[Number] = None,
        bias_correction: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[Number] = None,
    ) -> None:
        self._begin(locals())


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop; the TensorFlow variant starts from squares of one and has epsilon under the root."""

    _ipu_kind = "rmsprop"

    def __init__(
        self,
        params: Params,
        lr: Optional[Number] = None,
        alpha: Optional[Number] = None,
        eps: Optional[Number] = None,
        weight_decay: Optional[Number] = None,
        momentum: Optional[Number] = None,
        centered: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[Number] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        use_tf_variant: Optional[bool] = None,
    ) -> None:
        self._begin(locals())


class _LayerWise(torch.optim.Optimizer):
    """LAMB on the host, which torch does not have."""

    def __init__(self, params: Params, **arguments: Any) -> None:
        values = {**read.ATTRIBUTES["lamb"], **arguments}
        for name in ("lr", "eps", "weight_decay"):
            if not values[name] >= 0:
                raise ValueError(f"Invalid {name}: {values[name]}")
        for index, beta in enumerate(values["betas"]):
            if not 0 <= beta < 1:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        super().__init__(params, values)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update on the host, with the arithmetic of the device."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        kernel = KERNELS["lamb"]
        for group in self.param_groups:
            values = {name: group[name] for name in read.ATTRIBUTES["lamb"]}
            h = hyper_parameters(**values, bias_correction=self.bias_correction)
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                slots = self.state[weight]
                slots["step"] = slots.get("step", 0) + 1
                columns = {slot: [slots.setdefault(slot, torch.zeros_like(weight))] for slot in kernel.slots(h)}
                kernel.run([weight], [weight.grad], columns, h, slots["step"])
        return loss


class LAMB(Optimizer, _LayerWise):
    """Adam whose step is scaled, weight by weight, by phi(norm of the weight) / norm of the step.

    phi(z) is min(z, ``max_weight_norm``); float16 ends at the default.
    """

    _ipu_kind = "lamb"

    def __init__(
        self,
        params: Params,
        lr: Optional[Number] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[Number] = None,
        weight_decay: Optional[Number] = None,
        bias_correction: Optional[bool] = None,
        loss_scaling: Optional[Number] = None,
        max_weight_norm: Optional[Number] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
    ) -> None:
        self._begin(locals())

    @property
    def max_weight_norm(self) -> float:
        """The limit of groups that bring none."""
        limit: float = self.defaults["max_weight_norm"]
        return limit
