"""The oracle's regression on the device: a model with the starting weights, and an executor for it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle import regression
from ipu_conformance.oracle.regression import BATCH, BIAS, INPUTS, OUTPUTS, START, WEIGHT, Call, X, Y
from ipu_conformance.run import Rule, optimizer

from ..lazily import poptorch, torch
from ..on_device import as_model

Array = np.ndarray
Make = Callable[[Any], Any]
"""What makes an optimizer for a model."""


def both(*pairs: Any) -> List[Call]:
    """One call per (rule, rate), the same for both weights."""
    return [{WEIGHT: pair, BIAS: pair} for pair in pairs]


def assert_weights(actual: Mapping[str, Array], calls: Sequence[Call], **settings: Any) -> None:
    """The weights are those of the oracle after the calls; the settings are those of its ``train``."""
    __tracebackhide__ = True
    expected, tolerances = regression.train(calls, **settings)
    for name, value in expected.items():
        check.close(actual=actual[name], expected=value, tolerance=tolerances[name], what=name, dtype=np.float32)


def assert_same_weights(
    actual: Mapping[str, Array], expected: Mapping[str, Array], because: str = "bit-identical by specification"
) -> None:
    """Two sets of weights, or of optimizer state, have the same names and bits."""
    __tracebackhide__ = True
    check.equal(actual=sorted(actual), expected=sorted(expected), what="the list of names")
    for name, value in expected.items():
        check.identical(actual=actual[name], expected=value, what=name, because=because)


NAMES = {"eps": "epsilon", "centered": "centred"}
"""The oracle's names of arguments whose names differ."""
WITHOUT_EFFECT = ("loss_scaling", "max_grad_norm", "use_combined_accum", "velocity_scaling")
"""Arguments that no rule knows of."""


def rule(name: str, arguments: Mapping[str, Any]) -> Rule:
    """The oracle's rule for an optimizer with these arguments; AdamW corrects its bias, whatever it is told."""
    settings = {NAMES.get(key, key): value for key, value in arguments.items() if key not in WITHOUT_EFFECT}
    if "betas" in settings:
        settings["beta1"], settings["beta2"] = settings.pop("betas")
    if settings.pop("use_tf_variant", False):
        settings.update(epsilon_inside=True, rate_in_velocity=True)
    if name == "AdamW":
        settings.pop("bias_correction", None)
    return optimizer(name.lower(), **settings)


def optimizer_class(name: str, package: str) -> Any:
    """A class of torch.optim or poptorch.optim."""
    return getattr(torch.optim if package == "torch" else poptorch.optim, name)


def make(name: str, package: str = "poptorch", **arguments: Any) -> Make:
    """What makes an optimizer of torch.optim or poptorch.optim for all weights of a model, with a rate of 0.1."""
    return lambda model: optimizer_class(name, package)(model.parameters(), **{"lr": 0.1, **arguments})


class Problem:
    """The problem on the device: a model with the starting weights, and an executor for it.

    A ``pipelined`` model has its weight on one IPU and its bias and loss on the next.
    """

    def __init__(
        self,
        make: Make,
        *,
        accumulation: int = 1,
        replicas: int = 1,
        pipelined: bool = False,
        options: Optional[Any] = None,
    ) -> None:
        def forward(model: Any, x: Any, y: Any) -> Any:
            if not pipelined:
                out = model.layer(x)
                return out, model.loss(out, y)
            with poptorch.Block("weight", ipu_id=0):
                out = torch.nn.functional.linear(x, model.layer.weight)
            with poptorch.Block("bias", ipu_id=1):
                out = out + model.layer.bias
                return out, model.loss(out, y)

        self.samples = accumulation * replicas * BATCH
        self.model = as_model(forward, layer=torch.nn.Linear(INPUTS, OUTPUTS), loss=torch.nn.MSELoss())
        self.model.load_state_dict({name: torch.tensor(value) for name, value in START.items()})
        self.optimizer = make(self.model)
        options = poptorch.Options() if options is None else options
        options.Training.gradientAccumulation(accumulation)
        options.replicationFactor(replicas)
        self.executor = poptorch.trainingModel(self.model, options, self.optimizer)
        self.calls = 0

    def call(self, times: int = 1) -> Any:
        """Call the executor with the next data and return what the last call returned."""
        result = None
        for _ in range(times):
            x, y = (torch.tensor(data[self.calls, : self.samples]) for data in (X, Y))
            result = self.executor(x, y)
            self.calls += 1
        return result

    def set_optimizer(self, **values: Any) -> None:
        """Change values of the optimizer's first group on the host and send the optimizer to the device."""
        self.optimizer.param_groups[0].update(values)
        self.executor.setOptimizer(self.optimizer)

    def weights(self) -> Dict[str, Array]:
        """Copies of the weights, brought to the host."""
        return {name: value.detach().numpy().copy() for name, value in self.model.state_dict().items()}


def trained(make: Make, calls: int = 3, **problem: Any) -> Dict[str, Array]:
    """The weights after some calls with the optimizer that ``make`` gives for the model."""
    regressor = Problem(make, **problem)
    regressor.call(calls)
    return regressor.weights()
