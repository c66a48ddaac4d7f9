"""The configuration and the record of a training run, in words that every framework shares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np

from ipu_conformance.errors import ConformanceError

Array = np.ndarray
Weights = Mapping[str, Array]
Settings = Tuple[Tuple[str, Any], ...]


class RunError(ConformanceError):
    """A configuration, a net or its data cannot describe a run."""


OPTIMIZERS: Dict[str, Dict[str, Any]] = {
    "sgd": {
        "momentum": 0.0,
        "dampening": 0.0,
        "nesterov": False,
        "weight_decay": 0.0,
        "decoupled": False,
        "rate_in_velocity": False,
    },
    "adam": {
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "decoupled": False,
        "bias_correction": True,
        "epsilon_at": "corrected",
    },
    "adamw": {
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "decoupled": True,
        "bias_correction": True,
        "epsilon_at": "corrected",
    },
    "adamax": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0, "epsilon_at": "gradient"},
    "rmsprop": {
        "alpha": 0.99,
        "epsilon": 1e-8,
        "momentum": 0.0,
        "centred": False,
        "weight_decay": 0.0,
        "epsilon_inside": False,
        "rate_in_velocity": False,
    },
    "adagrad": {"epsilon": 1e-10, "initial": 0.0, "rate_decay": 0.0, "weight_decay": 0.0, "epsilon_inside": False},
    "adadelta": {"rho": 0.9, "epsilon": 1e-6, "weight_decay": 0.0},
    "lamb": {
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-6,
        "weight_decay": 0.01,
        "bias_correction": True,
        "max_weight_norm": math.inf,
    },
}
"""Every optimizer with its settings and their defaults; a driver passes all of them, so no framework's default counts.

``decoupled`` decay shrinks the weight, else it joins the gradient. ``rate_in_velocity`` puts the learning rate into the
momentum buffer (Keras, Paddle's rmsprop) instead of applying it to the buffer (PyTorch). ``epsilon_at`` of adam is
"corrected" (PyTorch, Paddle, PopART) or "uncorrected" (Keras): is epsilon added to the bias-corrected root or to the
plain one? Of adamax it is "gradient" (PyTorch), "norm" (Paddle) or "denominator" (Keras). ``epsilon_inside`` adds it
under the root (Keras; Paddle's rmsprop) instead of to the root.
"""

SCHEDULES: Dict[str, Dict[str, Any]] = {
    "constant": {"base": 0.01},
    "step": {"base": 0.01, "size": 1, "gamma": 0.1},
    "multistep": {"base": 0.01, "milestones": (), "gamma": 0.1},
    "exponential": {"base": 0.01, "gamma": 0.9, "every": 1, "staircase": False},
    "polynomial": {"base": 0.01, "total": 10, "end": 0.0, "power": 1.0, "cycle": False},
    "cosine": {"base": 0.01, "total": 10, "end": 0.0},
    "warmup": {"base": 0.01, "length": 10, "start": 0.0},
    "piecewise": {"boundaries": (), "values": (0.01,), "closed": False},
    "natural_exp": {"base": 0.01, "gamma": 0.1},
    "inverse_time": {"base": 0.01, "gamma": 0.1, "every": 1, "staircase": False},
    "noam": {"base": 1.0, "model_size": 512, "warmup": 4000},
}
"""Every learning-rate schedule with its settings and their defaults.

``every`` is the number of counts that one ``gamma`` takes, all at once with ``staircase``. A ``closed`` piece includes
its boundary (Keras), an open one ends before it (Paddle).
"""

CHOICES: Dict[str, Tuple[str, ...]] = {
    "schedule": ("grouped", "interleaved", "sequential"),
    "accumulation_reduction": ("mean", "sum", "running_mean"),
    "replica_reduction": ("mean", "sum"),
    "update": ("device_iteration", "run", "micro_batch"),
    "rate_changes": ("run", "update"),
    "dtype": ("float16", "float32"),
    "partials": ("float16", "float32"),
    "accumulators": ("float16", "float32"),
    "output_mode": ("all", "every_n", "final", "sum"),
    "output_layout": ("poptorch", "paddle", "tensorflow"),
}
"""The allowed words of each field of a RunConfig that is a choice."""


def _settings(table: Mapping[str, Mapping[str, Any]], kind: str, name: str, given: Mapping[str, Any]) -> Settings:
    if name not in table:
        raise RunError(f"{kind} {name!r} is unknown: choose one of {', '.join(table)}.")
    unknown = sorted(set(given) - set(table[name]))
    if unknown:
        raise RunError(f"{name} has no setting {unknown[0]!r}: its settings are {', '.join(table[name])}.")
    return tuple((key, given.get(key, default)) for key, default in table[name].items())


@dataclass(frozen=True)
class Rule:
    """A named rule (an optimizer or a learning-rate schedule) with all of its settings."""

    name: str
    settings: Settings

    def __getitem__(self, key: str) -> Any:
        return dict(self.settings)[key]

    def describe(self, defaults: Mapping[str, Any]) -> str:
        """The name, followed by the settings that differ from ``defaults``."""
        changed = [f"{key}={_word(value)}" for key, value in self.settings if value != defaults[key]]
        return ",".join([self.name, *changed])


def optimizer(name: str, **settings: Any) -> Rule:
    """The optimizer ``name`` with the defaults of ``OPTIMIZERS`` for what is not given."""
    return Rule(name, _settings(OPTIMIZERS, "optimizer", name, settings))


def learning_rate(name: str = "constant", **settings: Any) -> Rule:
    """The learning-rate schedule ``name`` with the defaults of ``SCHEDULES`` for what is not given."""
    return Rule(name, _settings(SCHEDULES, "learning-rate schedule", name, settings))


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(_word, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


@dataclass(frozen=True)
class RunConfig:
    """All that shapes a run besides the net and the data; ``str`` gives its short and stable id.

    The id gives the number of stages, not the cut: cuts of one net into one number of stages share it.

    One *step* is one call of the framework's API. It consumes ``device_iterations x gradient_accumulation x replicas``
    micro-batches, in that order, and leaves one update per device iteration (or, with ``update="run"``, one per step).
    With ``update="micro_batch"`` nothing is accumulated and a pipeline is not emptied before an update: a stage updates
    its weights after each backward, while other micro-batches are on their way.
    """

    device_iterations: int = 1
    gradient_accumulation: int = 1
    replicas: int = 1
    micro_batch: int = 2
    steps: int = 1
    stages: Tuple[int, ...] = ()
    """The pipeline stage of each layer of the net, in the net's order; empty means that all are on one."""
    devices: Tuple[int, ...] = ()
    """The IPU of each stage; empty means stage i is on IPU i."""
    schedule: str = "grouped"
    recompute: bool = False
    optimizer: Rule = field(default_factory=lambda: optimizer("sgd"))
    learning_rate: Rule = field(default_factory=learning_rate)
    rate_changes: str = "run"
    """When the schedule moves on: once per step (the host sets it) or with every update (the device counts)."""
    accumulation_reduction: str = "mean"
    replica_reduction: str = "mean"
    update: str = "device_iteration"
    loss_scale: float = 1.0
    clip_norm: Optional[float] = None
    decays: Tuple[Tuple[str, float], ...] = ()
    """The weights, by name, whose decay is not the optimizer's; 0 exempts a weight."""
    unbiased_statistics: bool = True
    """Is batch norm's running variance made of unbiased variances (PyTorch, Keras on images) or biased (Paddle)?"""
    dtype: str = "float32"
    partials: str = "float32"
    accumulators: str = "float32"
    """What the gradients of micro-batches are added up in."""
    stochastic_rounding: bool = False
    output_mode: str = "all"
    output_period: int = 1
    output_layout: str = "poptorch"
    seed: int = 2021
    training: bool = True

    def __post_init__(self) -> None:
        for name in ("device_iterations", "gradient_accumulation", "replicas", "micro_batch", "steps", "output_period"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise RunError(f"{name} is {value!r}: give a whole number of at least 1.")
        for name, words in CHOICES.items():
            if getattr(self, name) not in words:
                raise RunError(f"{name} is {getattr(self, name)!r}: choose one of {', '.join(words)}.")
        for rule, table, kind in (
            (self.optimizer, OPTIMIZERS, "optimizer"),
            (self.learning_rate, SCHEDULES, "learning-rate schedule"),
        ):
            _settings(table, kind, rule.name, dict(rule.settings))
        self._check_stages()
        self._check_numbers()
        self._check_outputs()

    def _check_stages(self) -> None:
        steps = [after - before for before, after in zip((0, *self.stages), self.stages)]
        if any(step not in (0, 1) for step in steps) or (self.stages and self.stages[0] != 0):
            raise RunError(f"stages are {self.stages}: number them from 0 upwards, without gaps, in the layers' order.")
        if self.devices and (len(self.devices) != self.number_of_stages or min(self.devices) < 0):
            raise RunError(
                f"devices are {self.devices}: give an IPU number for each of the "
                f"{self.number_of_stages} stages, or none."
            )

    def _check_numbers(self) -> None:
        if not (math.isfinite(self.loss_scale) and self.loss_scale > 0):
            raise RunError(f"loss_scale is {self.loss_scale}: give a finite number above 0.")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise RunError(f"clip_norm is {self.clip_norm}: give a number above 0, or None for no clipping.")
        if not self.training and self.gradient_accumulation != 1:
            raise RunError(f"gradient_accumulation is {self.gradient_accumulation}: inference needs 1.")
        if self.update == "micro_batch" and self.gradient_accumulation != 1:
            raise RunError(f"gradient_accumulation is {self.gradient_accumulation}: an update a micro-batch needs 1.")
        if self.update == "micro_batch" and self.clip_norm is not None:
            raise RunError(f"clip_norm is {self.clip_norm}: updates inside a pipeline never see all gradients at once.")
        wrong = [name for name, decay in self.decays if not (math.isfinite(decay) and decay >= 0)]
        if wrong:
            raise RunError(f"the decay of {wrong[0]} is {dict(self.decays)[wrong[0]]}: give a number of at least 0.")

    def _check_outputs(self) -> None:
        if self.output_mode != "every_n" and self.output_period != 1:
            raise RunError(f"output_period is {self.output_period}: it belongs to output_mode every_n, leave it at 1.")
        per_replica = self.device_iterations * self.gradient_accumulation
        if per_replica % self.output_period:
            raise RunError(
                f"output_period is {self.output_period}: it must divide the {per_replica} micro-batches "
                "that a replica sees in a step."
            )
        allowed = {"poptorch": CHOICES["output_mode"], "paddle": ("all",), "tensorflow": ("all", "final", "sum")}
        if self.output_mode not in allowed[self.output_layout]:
            raise RunError(
                f"output_mode is {self.output_mode!r}: {self.output_layout} returns "
                f"{' or '.join(allowed[self.output_layout])}."
            )

    @property
    def number_of_stages(self) -> int:
        return max(self.stages, default=0) + 1

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches in a step."""
        return self.device_iterations * self.gradient_accumulation * self.replicas

    @property
    def combined_batch(self) -> int:
        """The number of samples that one step is fed."""
        return self.micro_batches * self.micro_batch

    @property
    def counts_id(self) -> str:
        """The part of the id that names device iterations, accumulation and replicas."""
        return f"D{self.device_iterations}-G{self.gradient_accumulation}-R{self.replicas}"

    def with_counts(
        self, device_iterations: int = 1, gradient_accumulation: int = 1, replicas: int = 1, **changes: Any
    ) -> RunConfig:
        """The same configuration with other counts and ``changes``."""
        return replace(
            self,
            device_iterations=device_iterations,
            gradient_accumulation=gradient_accumulation,
            replicas=replicas,
            **changes,
        )

    def inference(self) -> RunConfig:
        """The same without training: all micro-batches that a replica sees in a step are device iterations."""
        iterations = self.device_iterations * self.gradient_accumulation
        return replace(
            self, training=False, device_iterations=iterations, gradient_accumulation=1, steps=1, recompute=False
        )

    def __str__(self) -> str:
        words = [self.counts_id, f"S{self.number_of_stages}"]
        if self.number_of_stages > 1:
            words.append(self.schedule)
        words.append(self.optimizer.describe(OPTIMIZERS[self.optimizer.name]) if self.training else "infer")
        return "-".join(words + [word for spec in fields(self) for word in self._extra(spec.name)])

    def _extra(self, name: str) -> Tuple[str, ...]:
        """The id's word for a field that is not at its default, none for one that is or is shown already."""
        value = getattr(self, name)
        if name in _SHOWN or value == getattr(_DEFAULTS, name):
            return ()
        if isinstance(value, Rule):
            return (value.describe(SCHEDULES[value.name]),)
        return (_SHORT.get(name, name + "=") + ("" if value is True else _word(value)),)


_SHOWN = ("device_iterations", "gradient_accumulation", "replicas", "stages", "schedule", "optimizer", "training")
_SHORT = {
    "micro_batch": "B",
    "steps": "N",
    "devices": "ipus",
    "recompute": "recompute",
    "accumulation_reduction": "",
    "replica_reduction": "replica_",
    "loss_scale": "L",
    "clip_norm": "clip",
    "dtype": "",
    "partials": "partials_",
    "accumulators": "accumulators_",
    "decays": "decays_",
    "stochastic_rounding": "sr",
    "output_mode": "out_",
    "output_period": "",
    "output_layout": "",
    "seed": "seed",
    "update": "update_per_",
    "rate_changes": "rate_per_",
    "unbiased_statistics": "unbiased=",
}
_DEFAULTS = RunConfig()


@dataclass(frozen=True)
class RunRecord:
    """What a run leaves behind; None means that whoever ran it cannot know, never that it is empty.

    Arrays are float64 copies of what the target returned. Names of weights are those of the net.
    """

    config: RunConfig
    net: str
    losses: Tuple[Array, ...]
    """Per step, the loss of each micro-batch (before loss scaling), in the form of the output mode and layout."""
    outputs: Optional[Tuple[Array, ...]] = None
    """Per step, the net's output (logits), in the form of the output mode and layout."""
    weights: Optional[Weights] = None
    """After the last step, as the user reads them."""
    weights_by_replica: Optional[Tuple[Weights, ...]] = None
    weights_by_step: Optional[Tuple[Weights, ...]] = None
    optimizer_state: Optional[Mapping[str, Weights]] = None
    """State by name ("momentum", "first", "second", …), then by weight."""
    updates: Optional[int] = None
    """How often the weights were updated."""
    statistics: Optional[Weights] = None
    """Running statistics of batch norm ("bn1.running_mean", …) as the user reads them."""
    statistics_by_replica: Optional[Tuple[Weights, ...]] = None
    masks: Optional[Mapping[Tuple[Any, ...], Array]] = None
    """Dropout's masks by (layer, step, device iteration, accumulation, replica)."""
    gradients: Optional[Tuple[Weights, ...]] = None
    """Per update, the reduced gradients as the optimizer got them: unscaled and clipped."""
    ir: Optional[Any] = None
    trace: Optional[Tuple[Any, ...]] = None
    framework: str = "oracle"
    target: str = "oracle"
    environment: Mapping[str, str] = field(default_factory=dict)
