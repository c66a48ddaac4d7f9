"""What each vendor's API has words for, as pure functions of nets and configurations: no framework is imported.

A driver's ``supports`` is what this module says. Tables of cases ask it before anything is imported, so that a case
which a framework cannot express is left out with its reason.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, Mapping, Optional, Tuple

from ipu_conformance.frameworks.dialects import UNFOLDED_RATE, WITHOUT_RATE
from ipu_conformance.nets import Net
from ipu_conformance.run import RunConfig

Unable = Dict[str, bool]
"""What there may be no words for, and whether a run asks for it."""

NAMES = {"poptorch": "PopTorch", "paddle": "Paddle", "tensorflow": "TensorFlow"}
OPTIMIZERS: Mapping[str, Tuple[str, ...]] = {
    "poptorch": ("sgd", "adam", "adamw", "rmsprop", "lamb"),
    "paddle": ("sgd", "adam", "adamw", "adamax", "rmsprop", "adagrad", "adadelta", "lamb"),
    "tensorflow": ("sgd", "adam", "adamw", "adamax", "rmsprop", "adagrad", "adadelta"),
}
GENERATIONS: Mapping[str, Tuple[str, ...]] = {
    "new": OPTIMIZERS["tensorflow"],
    "legacy": tuple(name for name in OPTIMIZERS["tensorflow"] if name != "adamw"),
    "addons": ("sgd", "adam", "lamb"),
}
"""The optimizers of each generation of Keras', and of the vendor's own."""
SCHEDULES: Mapping[str, Tuple[str, ...]] = {
    "poptorch": ("step", "multistep", "exponential", "polynomial", "cosine", "warmup"),
    "tensorflow": ("step", "cosine", "exponential", "polynomial", "piecewise", "inverse_time"),
}
"""The learning-rate schedules of a framework; Paddle has them all."""


def inexpressible(framework: str, net: Net, config: RunConfig, **generation: str) -> Optional[str]:
    """The first thing that a run asks for and a framework has no words for, None if it has words for all.

    ``generation`` is one of ``GENERATIONS``.
    """
    unable = {
        **_TABLE[framework](net, config, **generation),
        f"the output layout of {config.output_layout}": config.output_layout != framework,
    }
    return next((what for what, asked in unable.items() if asked), None)


def supports(framework: str, net: Net, config: RunConfig, **generation: str) -> Optional[str]:
    """Why a framework cannot express a run, in one sentence; None if it can."""
    what = inexpressible(framework, net, config, **generation)
    return None if what is None else f"{NAMES[framework]} does not do {what}: choose another configuration for it."


def _poptorch(net: Net, config: RunConfig) -> Unable:
    rule, schedule = dict(config.optimizer.settings), dict(config.learning_rate.settings)
    name, scheduler = config.optimizer.name, config.learning_rate.name
    always = {
        "the interleaved schedule": config.schedule == "interleaved",
        f"a pipeline of {config.number_of_stages} stages with so few micro-batches": _shallow(config),
    }
    if not config.training:
        return always
    return {
        **always,
        f"the optimizer {name}": name not in OPTIMIZERS["poptorch"],
        "the learning rate inside the velocity": rule.get("rate_in_velocity", False),
        "epsilon inside the root": rule.get("epsilon_inside", False),
        "epsilon beside the uncorrected root": rule.get("epsilon_at") == "uncorrected",
        "moments without bias correction": name != "lamb" and not rule.get("bias_correction", True),
        "decoupled decay of this optimizer": name in ("sgd", "adam") and rule["decoupled"],
        "a rate that changes on the device": config.rate_changes == "update",
        f"the schedule {scheduler}": scheduler not in ("constant", *SCHEDULES["poptorch"]),
        "a schedule in pieces": schedule.get("every", 1) != 1 or schedule.get("staircase", False),
        "polynomial decay to an end or in cycles": scheduler == "polynomial"
        and bool(schedule["end"] or schedule["cycle"]),
        "a cosine that stays at its end": scheduler == "cosine" and config.steps > schedule["total"] + 1,
        "a warm-up from nothing": scheduler == "warmup" and not 0 < schedule["start"] <= schedule["base"],
        "different reductions of accumulation and replicas": config.accumulation_reduction != config.replica_reduction,
        "a running mean on request": config.accumulation_reduction == "running_mean",
        f"gradient clipping by norm with {name}": config.clip_norm is not None and name in ("rmsprop", "lamb"),
        "one update for several device iterations": config.update == "run" and config.device_iterations > 1,
        "an update before a pipeline is empty": config.update == "micro_batch",
        "batch norm with a biased running variance": not config.unbiased_statistics,
    }


def _paddle(net: Net, config: RunConfig) -> Unable:
    pipelined = config.number_of_stages > 1 and config.schedule == "grouped"
    return {
        **(_paddle_rules(config) if config.training else {}),
        "different reductions of accumulation and replicas": config.accumulation_reduction != config.replica_reduction,
        "a running mean on request": config.accumulation_reduction == "running_mean",
        "the interleaved schedule": config.schedule == "interleaved",
        "one update for several batches of a step": config.update == "run" and config.device_iterations > 1,
        "emptying a pipeline before an update of one micro-batch": pipelined
        and config.training
        and config.gradient_accumulation == 1
        and config.update == "device_iteration",
        f"a pipeline of {config.number_of_stages} stages with so few micro-batches": _shallow(config),
        "batch norm with an unbiased running variance": config.unbiased_statistics and bool(net.statistics),
        "half precision in this driver": (config.dtype, config.partials) != ("float32", "float32"),
        "accumulators in half precision": config.accumulators != "float32",
        "stochastic rounding in this driver": config.stochastic_rounding,
    }


def _paddle_rules(config: RunConfig) -> Unable:
    rule, schedule = dict(config.optimizer.settings), dict(config.learning_rate.settings)
    name = config.optimizer.name
    return {
        "Nesterov's momentum": rule.get("nesterov", False),
        "dampening": bool(rule.get("dampening")),
        "the learning rate inside the velocity": rule.get("rate_in_velocity", False),
        "epsilon inside the root": rule.get("epsilon_inside", False),
        "epsilon beside the uncorrected root": rule.get("epsilon_at") == "uncorrected",
        "epsilon beside the gradient or the norm": name == "adamax" and rule["epsilon_at"] != "denominator",
        "a rate that decays with the count": bool(rule.get("rate_decay")),
        "decoupled decay of this optimizer": name in ("sgd", "adam") and rule["decoupled"],
        "coupled decay of adamw": name == "adamw" and not rule["decoupled"],
        "moments without bias correction": not rule.get("bias_correction", True),
        "a limit of weights' norms": rule.get("max_weight_norm", math.inf) != math.inf,
        # The compiler folds all updates into one optimizer; of the decays of single weights it keeps those of lamb.
        f"a decay of its own for a weight with {name}": bool(config.decays) and name != "lamb",
        "any decay of its own for a weight but none": any(decay for _, decay in config.decays),
        "a rate that changes on the device": config.rate_changes == "update",
        "a schedule in pieces": schedule.get("every", 1) != 1 or schedule.get("staircase", False),
        "pieces that include their boundary": schedule.get("closed", False),
        # The compiler folds no rate of these, and no decay that a device would apply from the first step on but lamb's.
        f"a learning rate of its own for {name}": name in WITHOUT_RATE
        and (config.learning_rate.name != "constant" or schedule["base"] != UNFOLDED_RATE),
        f"weight decay with {name}": name != "lamb" and bool(rule["weight_decay"]),
    }


def _tensorflow(net: Net, config: RunConfig, generation: str = "new") -> Unable:
    return {
        **(_keras_rules(config, generation) if config.training else {}),
        "a mean over replicas in fit": config.replicas > 1 and config.replica_reduction == "mean",
        "sums of outputs in fit": config.output_mode == "sum",
        "one update for several pipeline runs": config.update == "run" and config.device_iterations > 1,
        "an update before a pipeline is empty": config.update == "micro_batch",
        f"a pipeline of {config.number_of_stages} stages with an uneven number of micro-batches": _uneven(config),
        "batch norm of images with a biased running variance": bool(net.statistics) and not config.unbiased_statistics,
        "partial sums in half precision": config.partials != "float32",
        # Keras' own optimizer for it refuses strategies that it does not know.
        "loss scaling": config.loss_scale != 1.0,
        "a device for each stage of one": bool(config.devices) and config.number_of_stages == 1,
    }


def _keras_rules(config: RunConfig, generation: str) -> Unable:
    rule, schedule = dict(config.optimizer.settings), dict(config.learning_rate.settings)
    name, scheduler = config.optimizer.name, config.learning_rate.name
    old, own = generation == "legacy", generation == "addons"
    root = "corrected" if own else "uncorrected"
    inside = {"rmsprop": not old or bool(rule.get("momentum")), "adagrad": not old}
    moving = name in ("sgd", "rmsprop") and bool(rule["momentum"])
    return {
        f"{name} in this generation": name not in GENERATIONS[generation],
        "dampening": bool(rule.get("dampening")),
        "the learning rate outside the velocity": moving and not rule["rate_in_velocity"],
        "epsilon on this side of the root": name in inside and rule["epsilon_inside"] != inside[name],
        f"epsilon beside the {'plain' if own else 'corrected'} root": name in ("adam", "adamw")
        and rule["epsilon_at"] != root,
        "epsilon beside the gradient or the norm": name == "adamax" and rule["epsilon_at"] != "denominator",
        "a rate that decays with the count": bool(rule.get("rate_decay")),
        "decay that joins the gradient": bool(rule["weight_decay"])
        and not (rule.get("decoupled", False) or name == "lamb"),
        "decoupled decay in this generation": bool(rule["weight_decay"]) and generation != "new" and name != "lamb",
        "any decay of its own for a weight but none": any(decay for _, decay in config.decays),
        "moments without bias correction": not own and not rule.get("bias_correction", True),
        "a limit of weights' norms": not own and rule.get("max_weight_norm", math.inf) != math.inf,
        f"the schedule {scheduler}": scheduler not in ("constant", *SCHEDULES["tensorflow"]),
        "pieces that end before their boundary": scheduler == "piecewise" and not schedule["closed"],
    }


def _shallow(config: RunConfig) -> bool:
    """Is a pipeline of PopART's fed fewer micro-batches at a time than its stages, forward and backward, need?"""
    stages = config.number_of_stages
    if stages == 1 or config.schedule == "sequential":
        return False
    accumulating = config.training and config.update != "micro_batch"
    depth = config.gradient_accumulation if accumulating else config.device_iterations
    return depth < (2 * stages - 1 if config.training else stages)


def _uneven(config: RunConfig) -> bool:
    """Does the number of micro-batches of a pipeline's run break the rule of its schedule?"""
    stages = config.number_of_stages
    if stages == 1 or config.schedule == "sequential":
        return False
    count = config.gradient_accumulation if config.training else config.device_iterations
    return bool(count % (2 * stages if config.training and config.schedule == "grouped" else stages))


_TABLE: Mapping[str, Callable[..., Unable]] = {"poptorch": _poptorch, "paddle": _paddle, "tensorflow": _tensorflow}
