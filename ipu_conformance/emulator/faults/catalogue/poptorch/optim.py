"""Ways for the device's optimizer to be wrong: its numbers, its state, its gradients, and what a change of it does."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping, Optional

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, patch, register, result

UPDATE = "poptorch.optim.update:DeviceUpdate"
OPTIMIZER = "poptorch.optim.optimizers:Optimizer"
READ = "poptorch.optim.read"
MACHINE = "poptorch.run.machine:TorchMachine"
IPU_STATE, IPU_PARAM = "ipu_state", "ipu_param"
Original = Callable[..., Any]


def _zeros(tensors: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    return None if tensors is None else {name: tensor * 0 for name, tensor in tensors.items()}


def _float32(*arguments: Any) -> Any:
    import torch

    return torch.float32


def _with(**numbers: Any) -> Wrong:
    """The numbers replace those of the same names, where the optimizer has them."""

    def wrong(original: Original, **values: Any) -> Any:
        right = original(**values)
        return type(right)(**{name: numbers.get(name, value) for name, value in vars(right).items()})

    return wrong


for _name, _what, _wrong in (
    ("momentum-forgotten", "weights move without momentum", _with(momentum=0)),
    ("dampening-ignored", "momentum is not dampened", _with(dampening=0)),
    ("nesterov-ignored", "Nesterov's momentum is plain momentum", _with(nesterov=False)),
    ("weight-decay-ignored", "weights do not decay", _with(weight_decay=0)),
    ("bias-correction-missing", "the bias of moments is not corrected", _with(bias_correction=False)),
    ("betas-at-default", "the coefficients of moments are 0.9 and 0.999", _with(beta1=0.9, beta2=0.999)),
    ("variance-not-centered", "RMSprop never subtracts the mean", _with(centered=False)),
    ("rmsprop-variant-ignored", "RMSprop is never TensorFlow's variant", _with(use_tf_variant=False)),
    ("weight-norm-unlimited", "LAMB never limits the norm of a weight", _with(max_weight_norm=math.inf)),
    ("ascent-ignored", "a loss that is maximised is minimised", _with(maximize=False)),
):
    register(Fault(_name, "update", "poptorch.optim.kernels:hyper_parameters", _what, _wrong), __name__)


@patch("loss-scale-not-removed", "update", f"{UPDATE}.step", "gradients still hold the loss scale")
def _still_scaled(original: Original, update: Any, weights: Any, gradients: Mapping[str, Any], state: Any) -> None:
    original(update, weights, {name: value * update.loss_scale for name, value in gradients.items()}, state)


for _fault in (
    Fault("first-group-for-all", "update", f"{UPDATE}._run", "all groups are updated with the first one's numbers",
          argument("group", always(0))),
    Fault("third-group-as-the-second", "update", f"{UPDATE}._run", "later groups have the second one's numbers",
          argument("group", lambda group: min(group, 1))),
    Fault("optimizer-count-stuck", "update", f"{UPDATE}._run", "every update takes itself for the first",
          argument("t", always(1))),
    Fault("bias-correction-ends-early", "update", "poptorch.optim.kernels:_corrections",
          "the bias of moments is that of the sixth update from then on", argument("t", lambda t: min(t, 6))),
    Fault("gradients-not-clipped", "update", f"{UPDATE}.clip_factor", "gradients of any norm are used", always(1.0)),
    Fault("half-accumulator-in-float32", "update", f"{UPDATE}.accum_type",
          "gradients are accumulated in float32 whatever was asked", _float32),
    Fault("half-state-in-float32", "update", f"{UPDATE}.type_of",
          "the optimizer's state is held in float32 whatever was asked", _float32),
    Fault("adamw-taken-for-adam", "update", f"{READ}:kind_of", "AdamW decays weights as Adam does",
          result(lambda kind: "adam" if kind == "adamw" else kind)),
    Fault("unknown-optimizer-is-sgd", "update", f"{READ}:kind_of",
          "an optimizer that the device lacks is taken for SGD", result(lambda kind: kind or "sgd")),
    Fault("set-optimizer-ignored", "update", "poptorch.run.executor:PoplarExecutor.setOptimizer",
          "the optimizer that was compiled in stays", always(None)),
    Fault("all-attributes-constant", "update", "poptorch.optim.optimizers:VariableAttributes.__init__",
          "arguments that are passed are constants",
          argument("variable_attributes", lambda names: [])),
    Fault("optimizer-warnings-missing", "update", f"{READ}:oddities", "nothing is said about odd optimizers",
          lambda original, optimizer: []),
    Fault("optimizer-warnings-repeated", "update", f"{READ}:_unsaid",
          "the same is said of an optimizer again and again", lambda original, lines, options: lines),
    Fault("optimizer-warnings-for-all", "update", f"{READ}:oddities", "ordinary optimizers are called odd",
          lambda original, optimizer: ["unexpected attributes"]),
    Fault("optimizer-checks-not-relaxed", "update", "poptorch.options.options:Options.relaxOptimizerAttributesChecks",
          "warnings about attributes cannot be turned off", lambda original, options, relax=True: options),
):  # fmt: skip
    register(_fault, __name__)


@patch("groups-decay-alike-later", "update", f"{UPDATE}._run",
       "from the third update on all groups decay as the first one does")  # fmt: skip
def _decaying_alike(original: Original, update: Any, group: int, t: int, *rest: Any) -> None:
    numbers = update._hyper[group]
    decay = numbers.weight_decay
    numbers.weight_decay = update._hyper[0].weight_decay if t > 2 else decay
    original(update, group, t, *rest)
    numbers.weight_decay = decay


@patch("nesterov-looks-ahead-undecayed", "update", f"{UPDATE}._run",
       "what Nesterov's momentum adds of the gradient has no weight decay")  # fmt: skip
def _undecayed(original: Original, update: Any, group: int, t: int, names: Any, weights: Any, *rest: Any) -> None:
    h = update._hyper[group]
    before = {name: weights[name].clone() for name in names if getattr(h, "nesterov", False)}
    original(update, group, t, names, weights, *rest)
    for name, old in before.items():
        weights[name].add_(old, alpha=h.lr * h.weight_decay)


@patch("variant-with-momentum-has-epsilon-outside", "update", f"{UPDATE}._run",
       "RMSprop as TensorFlow's adds epsilon to the root where it has momentum")  # fmt: skip
def _epsilon_outside(
    original: Original, update: Any, group: int, t: int, names: Any, weights: Any, gradients: Any, state: Any
) -> None:
    h = update._hyper[group]
    affected = list(names) if getattr(h, "use_tf_variant", False) and h.momentum else []
    before = {name: (weights[name].clone(), state[name]["velocity"].clone()) for name in affected}
    original(update, group, t, names, weights, gradients, state)
    for name, (weight, velocity) in before.items():
        square = state[name]["square"] - state[name]["mean"] ** 2 if h.centered else state[name]["square"]
        step = (gradients[name] + h.weight_decay * weight) / (square.sqrt() + h.eps)
        state[name]["velocity"].copy_(h.momentum * velocity + h.lr * step)
        weights[name].copy_(weight - state[name]["velocity"])


@patch("many-replicas-clip-twice", "update", f"{MACHINE}._clip_factor",
       "more than three replicas shrink their gradients twice")  # fmt: skip
def _clipping_twice(original: Original, machine: Any, replica: int) -> float:
    factor: float = original(machine, replica)
    return factor**2 if len(machine.replica_weights) > 3 else factor


@patch("middle-stage-of-a-weight-lost", "reduce", f"{MACHINE}.backward",
       "a weight of three stages gets no gradient from the middle one")  # fmt: skip
def _middle_lost(original: Original, machine: Any, replica: int, stage: int, *rest: Any) -> Any:
    weights = machine.replica_weights[replica]
    uses = {
        name: [number for number, program in enumerate(machine.stages) if name in program.weights]
        for name in machine.trainable
    }
    lost = [name for name, stages in uses.items() if len(stages) > 2 and stages[1] == stage]
    before = {name: None if weights[name].grad is None else weights[name].grad.clone() for name in lost}
    sent = original(machine, replica, stage, *rest)
    for name, gradient in before.items():
        weights[name].grad = gradient
    return sent


@patch("half-gradients-in-half", "numerics", f"{MACHINE}._folded",
       "gradients of float16 weights are accumulated in float16 whatever was asked")  # fmt: skip
def _in_half(original: Original, machine: Any, old: Any, fresh: Any, count: int) -> Any:
    return original(machine, old, fresh, count).to(fresh.dtype)


# The state on the host.


def _saved(change: Callable[[Any], Any]) -> Wrong:
    """What is saved of the device's state is changed."""

    def wrong(original: Original, optimizer: Any) -> Dict[str, Any]:
        saved = original(optimizer)
        return {**saved, IPU_STATE: change(saved[IPU_STATE])}

    return wrong


@patch("optimizer-state-lost-on-detach", "update", f"{OPTIMIZER}._ipu_state_to_host",
       "detaching forgets the optimizer's state")  # fmt: skip
def _forgotten(original: Original, optimizer: Any, states: Any) -> None:
    original(optimizer, states)
    optimizer._on_host = _zeros(optimizer._on_host)


@patch("optimizer-state-of-the-first-replica-alone", "update", f"{OPTIMIZER}._upload",
       "a state that is loaded reaches the first replica and no other")  # fmt: skip
def _first_replica(original: Original, optimizer: Any) -> None:
    states = optimizer._on_device
    optimizer._on_device = states and states[:1]
    original(optimizer)
    optimizer._on_device = states


@patch("loss-scale-stays-as-compiled", "update", f"{MACHINE}.set_update",
       "a new optimizer does not bring its loss scale to the device")  # fmt: skip
def _compiled_scale(original: Original, machine: Any, update: Any) -> None:
    compiled = machine.scaling.scale if hasattr(machine, "update_rule") else None
    original(machine, update)
    machine.scaling.scale = machine.scaling.scale if compiled is None else compiled


@patch("optimizer-groups-not-restored", "update", f"{OPTIMIZER}.load_state_dict",
       "loading an optimizer leaves its groups")  # fmt: skip
def _own_groups(original: Original, optimizer: Any, state: Mapping[str, Any]) -> None:
    original(optimizer, {**optimizer.state_dict(), IPU_STATE: state.get(IPU_STATE)})


@patch("optimizer-state-not-restored", "update", f"{OPTIMIZER}.load_state_dict",
       "loading an optimizer leaves the device's state")  # fmt: skip
def _groups_alone(original: Original, optimizer: Any, state: Mapping[str, Any]) -> None:
    original(optimizer, {**state, IPU_STATE: None})


@patch("optimizer-state-moved-as-zero", "update", f"{OPTIMIZER}.set_state_dict",
       "a state that is moved to another optimizer becomes zero")  # fmt: skip
def _moved(original: Original, optimizer: Any, state: Mapping[str, Any]) -> None:
    original(optimizer, {**state, IPU_STATE: _zeros(state.get(IPU_STATE))})


@patch("optimizer-numbers-not-restored", "update", f"{OPTIMIZER}.set_state_dict",
       "loading an optimizer leaves out the numbers of the device")  # fmt: skip
def _without_numbers(original: Original, optimizer: Any, state: Mapping[str, Any]) -> None:
    original(optimizer, {**state, IPU_PARAM: {}})


@patch("extra-arguments-dropped", "update", f"{OPTIMIZER}._begin",
       "arguments that torch's optimizers lack are ignored")  # fmt: skip
def _torch_s_alone(original: Original, optimizer: Any, arguments: Mapping[str, Any]) -> None:
    from ipu_conformance.emulator.poptorch.optim.read import WHOLE

    original(optimizer, {**arguments, **dict.fromkeys(WHOLE[optimizer._ipu_kind])})


for _name, _what, _change in (
    ("optimizer-state-saved-as-zero", "the saved state of an optimizer is zero", _zeros),
    ("optimizer-state-without-program", "there is a state before there is a program",
     lambda state: {} if state is None else state),
):  # fmt: skip
    register(Fault(_name, "update", f"{OPTIMIZER}.state_dict", _what, _saved(_change)), __name__)


@patch("groups-are-all-the-first", "update", "poptorch.optim.optimizers:Optimizer._begin",
       "every group of an optimizer gets the values of the first")  # fmt: skip
def _as_the_first(original: Original, optimizer: Any, arguments: Any) -> None:
    original(optimizer, arguments)
    first = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}
    for group in optimizer.param_groups:
        group.update(first)


@patch("optimizer-read-when-compiled", "update", "poptorch.run.executor:PoplarExecutor._make_ready",
       "a change to an optimizer that was not set again counts when the model is compiled")  # fmt: skip
def _read_again(original: Original, executor: Any, call: Any) -> None:
    if executor._training:
        executor.setOptimizer(executor._optimizer)
    original(executor, call)


@patch("lamb-divides-by-no-change", "update", "poptorch.optim.update:DeviceUpdate._run",
       "LAMB divides by the norm of a change that is zero")  # fmt: skip
def _by_no_change(original: Any, rule: Any, group: int, t: int, names: Any, weights: Any, *rest: Any) -> None:
    before = [weights[name].detach().clone() for name in names]
    original(rule, group, t, names, weights, *rest)
    for name, old in zip(names, before):
        if rule.settings.kind == "lamb" and old.any() and old.equal(weights[name].detach()):
            weights[name].data.fill_(float("nan"))


@patch("velocity-follows-the-new-rate", "update", "poptorch.optim.update:DeviceUpdate._run",
       "TensorFlow's RMSprop keeps its velocity without the rate", remembers=True)  # fmt: skip
def _without_the_rate(
    memory: Any, original: Any, rule: Any, group: int, t: int, names: Any, weights: Any, gradients: Any, state: Any
) -> None:
    h = rule._hyper[group]
    if getattr(h, "use_tf_variant", False) and h.momentum:
        for name in names:
            state[name]["velocity"].mul_(h.lr / memory.get(name, h.lr))
            memory[name] = h.lr
    original(rule, group, t, names, weights, gradients, state)


@patch("centred-means-not-restored", "weights", "poptorch.optim.state:by_weight",
       "a restored RMSprop begins its means anew")  # fmt: skip
def _no_means(original: Any, kind: str, tensors: Any) -> Any:
    lost = "Accl2___" if kind == "rmsprop" else "nothing"
    return original(kind, {name: value for name, value in tensors.items() if not name.startswith(lost)})


@patch("loss-scale-by-the-small", "update", "poptorch.run.loss_scaling:AutomaticScale._next",
       "large gradients are compared with the small ones, not with all")  # fmt: skip
def _by_the_small(original: Any, scale: Any, *arguments: Any) -> Any:
    right = scale.threshold
    scale.threshold = right / (1 + right)
    try:
        return original(scale, *arguments)
    finally:
        scale.threshold = right


@patch("loss-scale-of-the-first-replica", "update", "poptorch.run.loss_scaling:AutomaticScale._next",
       "the loss scale follows the gradients of the first replica")  # fmt: skip
def _of_the_first(original: Any, scale: Any, *arguments: Any) -> Any:
    right = scale._counts
    scale._counts = right[:1]
    try:
        return original(scale, *arguments)
    finally:
        scale._counts = right


register(
    Fault("convolutions-not-looked-at", "update", "name:poptorch.run.loss_scaling:TRACKED",
          "the loss scale follows the gradients of matrix products alone",
          lambda tracked: {call: count for call, count in tracked.items() if "convolution" not in str(call)}), __name__
)  # fmt: skip
