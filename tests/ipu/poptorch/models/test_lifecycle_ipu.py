"""From wrapping to destroying: compiling, attaching, detaching, and what is refused on the way."""

from __future__ import annotations

import gc
from operator import methodcaller
from pathlib import Path
from typing import Any, Callable, Dict, Sequence, Tuple

import pytest

from ipu_conformance import check

from .. import exact
from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import assert_refused

NOT_COMPILED = "Model has not been compiled or has been destroyed"
COPIES = ("copyWeightsToHost", "copyWeightsToDevice")


@pytest.mark.parametrize("destroyed", [False, True], ids=["wrapped", "destroyed before compiling"])
def test_wrapping_twice_is_refused(poptorch: Any, destroyed: bool) -> None:
    """A model that is wrapped for training cannot be wrapped again; destroy does nothing before it is compiled."""
    trainer, model = exact.trainer(poptorch)
    if destroyed:
        trainer.destroy()

    with check.raises(RuntimeError, match="wrapped", what="wrapping a model twice"):
        poptorch.trainingModel(model)


@pytest.mark.parametrize("by", ["executor", "model"])
def test_destroying_brings_weights_home_and_gives_classes_back(poptorch: Any, torch: Any, by: str) -> None:
    """destroy of either copies the weights and unwraps; a second one does nothing; the model can be wrapped again.

    Model, parameters and buffers have their own classes again.
    """
    x, config = exact.samples(2), exact.counts(2, 1, 1)
    scale = exact.scale(poptorch, held=torch.ones(1))
    expected = (type(scale), torch.nn.Parameter, torch.Tensor)
    trainer, model = exact.trainer(poptorch, config, model=scale)
    trainer(x)

    (trainer if by == "executor" else model).destroy()

    exact.assert_weights(model, exact.plain_run(x, config).weights)
    types = (type(model), type(model.weight), type(model.held))
    check.equal(actual=types, expected=expected, what="the type of the model, its weight and its buffer")
    check.holds(not hasattr(model, "destroy"), "the model is still wrapped after destroy.")
    for times in ("one", "two"):
        check.equal(actual=trainer.isCompiled(), expected=False, what=f"isCompiled() after {times} calls of destroy")
        trainer.destroy()
    poptorch.trainingModel(model, optimizer=exact.sgd(model))(exact.samples(1))


def run(trainer: Any) -> None:
    """Run a model that was or was not compiled."""
    trainer(exact.samples(1))


STATES: Dict[str, Tuple[str, Sequence[Callable[[Any], Any]], Sequence[str]]] = {
    "never compiled": (NOT_COMPILED, (), (*COPIES, "rng_state", "attachToDevice", "detachFromDevice")),
    "destroyed": (NOT_COMPILED, (run, methodcaller("destroy")), (*COPIES, "rng_state", "attachToDevice")),
    "detached": ("Device is not attached", (run, methodcaller("detachFromDevice")), (*COPIES, "detachFromDevice")),
    "attached": ("Device is already attached", (run,), ("attachToDevice",)),
}
"""The error of a state, how a model gets there, and what cannot be asked of it then."""


@pytest.mark.parametrize(("state", "name"), [(state, name) for state, row in STATES.items() for name in row[2]])
def test_what_a_state_does_not_allow_is_refused(poptorch: Any, state: str, name: str) -> None:
    """Copies need a device, and only what is attached can be detached; the error names the state."""
    error, steps, _ = STATES[state]
    trainer, _ = exact.trainer(poptorch)
    for step in steps:
        step(trainer)

    with check.raises(poptorch.Error, match=error, what=f"{name} of a model that is {state}"):
        attribute = getattr(trainer, name)
        attribute()


def test_an_executor_that_is_let_go_unwraps_its_model(poptorch: Any, torch: Any) -> None:
    """A training model without references gives the user's model its classes back."""
    trainer, model = exact.ran(poptorch)
    del trainer
    gc.collect()

    check.equal(actual=type(model.weight), expected=torch.nn.Parameter, what="the type of the weight")


def test_compiling_does_not_run(poptorch: Any, torch: Any) -> None:
    """compile leaves the weights as they are; compilationTime is None before, and a positive duration after."""
    trainer, model = exact.trainer(poptorch)
    before = trainer.compilationTime

    trainer.compile(exact.samples(1))

    check.equal(actual=trainer.isCompiled(), expected=True, what="isCompiled() after compile")
    assert_same(model.weight, torch.tensor([1.0, -2.0]), "the weight")
    check.equal(actual=before, expected=None, what="compilationTime before compiling")
    seconds = trainer.compilationTime.total_seconds()
    check.holds(seconds > 0, f"compilationTime is {seconds} s after compiling.")


def test_compiling_again_warns_and_is_ignored(poptorch: Any, said: Callable[[], str]) -> None:
    """A second compile says that it is ignored, and the model still takes the first one's shapes."""
    trainer, _ = exact.trainer(poptorch)
    trainer.compile(exact.samples(2))

    trainer.compile(exact.samples(3))

    check.contains(actual=said(), expected="ignored", what="what is said of a second compilation")
    trainer(exact.samples(2))


# Attaching.


CONNECTIONS: Dict[str, Tuple[bool, bool, Callable[[Any], Any]]] = {
    "Always": (True, True, lambda options: options),
    "OnDemand": (False, True, lambda options: options.connectionType(poptorch.ConnectionType.OnDemand)),
    "Never": (False, False, lambda options: options.connectionType(poptorch.ConnectionType.Never)),
    "offline": (False, False, lambda options: options.useOfflineIpuTarget()),
}
"""Whether a model is attached after compiling and after running, and the call that says so; Always is the default."""


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_model_on_demand_attaches_when_it_runs(poptorch: Any, connection: str) -> None:
    """By default compiling attaches a model, on demand only running does, and without device it cannot run."""
    compiled, ran, choose = CONNECTIONS[connection]
    trainer, _ = exact.trainer(poptorch, chosen=choose(poptorch.Options()))
    attached = [trainer.isAttachedToDevice()]
    trainer.compile(exact.samples(1))
    attached.append(trainer.isAttachedToDevice())
    if ran:
        trainer(exact.samples(1))
    else:
        with check.raises(AssertionError, what="running a model that never connects"):
            trainer(exact.samples(1))

    check.equal(actual=trainer.isCompiled(), expected=True, what="isCompiled()")
    attached.append(trainer.isAttachedToDevice())
    check.equal(actual=attached, expected=[False, compiled, ran], what="the list of isAttachedToDevice()")


@pytest.mark.parametrize("by_hand", [True, False], ids=["attached-by-hand", "attached-by-calling"])
def test_training_goes_on_after_detaching(poptorch: Any, by_hand: bool) -> None:
    """A model that was detached in between trains as one that was not; detaching brings the weights home."""
    x, config = exact.samples(2), exact.counts(2, 1, 1)
    trainer, model = exact.trainer(poptorch, config)
    for _ in range(3):
        trainer(x)
        trainer.detachFromDevice()
        check.equal(actual=trainer.copyWeightsToHostIfNeeded(), expected=False, what="copyWeightsToHostIfNeeded()")
        if by_hand:
            trainer.attachToDevice()
            check.equal(actual=trainer.isAttachedToDevice(), expected=True, what="isAttachedToDevice()")

    exact.assert_weights(model, exact.plain_run(x, config, calls=3).weights)


@pytest.mark.parametrize("kind", ["torch", "poptorch"])
def test_momentum_survives_detaching(poptorch: Any, torch: Any, kind: str) -> None:
    """The state of the optimizer goes on where it was."""
    sgd = {"torch": torch.optim, "poptorch": poptorch.optim}[kind].SGD
    weights = []
    for detach in (False, True):
        model = exact.scale(poptorch)
        trainer = poptorch.trainingModel(model, optimizer=sgd(model.parameters(), lr=exact.RATE, momentum=0.5))
        for _ in range(3):
            trainer(exact.samples(2))
            if detach:
                trainer.detachFromDevice()
        weights.append(model.weight.detach().clone())

    assert_same(weights[1], weights[0], "the weight after two detachments")


# Options, attributes, measurements.


def test_attributes_are_those_of_the_model(poptorch: Any) -> None:
    """What an executor does not have itself is the user's model's."""
    trainer, model = exact.trainer(poptorch)
    model.note = "kept"

    check.equal(actual=trainer.note, expected="kept", what="the model's own attribute, asked of the executor")
    check.holds(trainer.model is model, "the executor's model is not the user's.")
    with check.raises(AttributeError, what="an attribute that nobody has"):
        _ = trainer.nothing


def test_latencies_are_measured(poptorch: Any) -> None:
    """After a run each latency has a least, a largest and a mean, and the whole is at least its parts."""
    trainer, _ = exact.ran(poptorch)

    parts = [trainer.getHostIpuLatency(), trainer.getComputeLatency(), trainer.getIpuHostLatency()]
    whole = trainer.getLatency()

    for least, largest, mean in [*parts, whole]:
        check.holds(0 <= least <= mean <= largest, f"the mean {mean} is not between 0, {least} and {largest}.")
    check.holds(whole[0] > 0, f"the run took no time: {whole}.")
    check.holds(whole[1] >= max(part[0] for part in parts), f"the whole {whole} is shorter than one of {parts}.")


def test_perf_counters_have_a_row_for_each_tensor(poptorch: Any) -> None:
    """One input and two outputs have moments that follow one another."""
    trainer, _ = exact.ran(poptorch)

    counters, tensors = trainer.getPerfCounters(), {"input": 1, "input_complete": 1, "output": 2, "output_complete": 2}

    rows = {name: len(rows) for name, rows in counters.items()}
    check.equal(actual=rows, expected=tensors, what="the number of tensors by moment")
    moments = [counters[name][0][0] for name in tensors]
    check.equal(actual=moments, expected=sorted(moments), what="the order of the moments")


@pytest.mark.emulator
def test_perf_counters_have_a_moment_for_each_micro_batch(poptorch: Any) -> None:
    """A call of two iterations of three micro-batches has six moments for its input, and the next call has its own."""
    config = exact.counts(2, 3, 1)
    trainer, _ = exact.trainer(poptorch, config)
    for _ in range(2):
        trainer(exact.batch(config))

    moments = {name: len(rows[0]) for name, rows in trainer.getPerfCounters().items()}
    expected = dict.fromkeys(("input", "input_complete", "output", "output_complete"), 6)
    check.equal(actual=moments, expected=expected, what="the number of moments of the first tensor")


@pytest.mark.parametrize("named", [False, True], ids=["default", "optimizer"])
def test_a_model_without_trainable_weights_is_trained(poptorch: Any, named: bool) -> None:
    """With every weight frozen a training model computes its loss and changes nothing, whatever its optimizer."""
    model, x = exact.scale(poptorch), exact.samples(1)
    model.weight.requires_grad_(False)
    before = model.weight.clone()
    trainer = poptorch.trainingModel(model, None, exact.sgd(model) if named else None)

    out, _ = trainer(x)

    exact.assert_same(out, x * before, "the output")
    exact.assert_weights(model, {"weight": before})


@pytest.mark.parametrize(("counted", "error"), [(False, "logCycleCount"), (True, "")], ids=["option", "run"])
def test_the_cycle_count_needs_its_option_and_a_run(poptorch: Any, counted: bool, error: str) -> None:
    """Cycles are counted only when that was asked for, and a model that has not run has none."""
    trainer, _ = exact.trainer(poptorch, chosen=poptorch.Options().logCycleCount(counted))
    trainer.compile(exact.samples(1))
    if not counted:
        trainer(exact.samples(1))

    with check.raises(poptorch.Error, match=error, what="cycleCount() without its option or before a run"):
        trainer.cycleCount()


# Files.


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The file that a model is written to."""
    return str(tmp_path / "model.popef")


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_an_exported_model_runs_elsewhere(poptorch: Any, path: str, training: bool) -> None:
    """A model that was compiled and exported gives the same outputs when it is loaded."""
    from .saved import Saved

    x = exact.samples(2)
    args = (x, x * 0.5) if training else (x,)
    executor = (poptorch.trainingModel if training else poptorch.inferenceModel)(Saved())
    executor.compileAndExport(path, *args)

    loaded = poptorch.load(path)

    check.equal(actual=loaded.isCompiled(), expected=True, what="isCompiled() after load")
    for call in range(3):
        actual, expected = loaded(*args), executor(*args)
        what = f"the output of call {call}"
        assert_same(actual[0] if training else actual, expected[0] if training else expected, what)


def exported(poptorch: Any, path: str, options: Any = None, model: Any = None, **settings: Any) -> None:
    """Write the executable of a linear layer to a file."""
    layer = model or torch.nn.Linear(2, 3)
    poptorch.inferenceModel(layer, options).compileAndExport(path, exact.samples(2), **settings)


@pytest.mark.parametrize(
    ("offline", "alone"), [(True, False), (True, True), (False, True)], ids=["load", "loadExecutable", "compiled here"]
)
def test_what_was_compiled_offline_runs_where_it_is_loaded(
    poptorch: Any, torch: Any, path: str, offline: bool, alone: bool
) -> None:
    """A file, for an offline target or not, is on a device once loaded, with the weights of the model that loads it."""
    model, x = torch.nn.Linear(2, 3), exact.samples(2)
    options = poptorch.Options().useOfflineIpuTarget() if offline else None
    exported(poptorch, path, options, None if alone else model, export_model=not alone)

    if alone:
        loaded = poptorch.inferenceModel(model)
        loaded.loadExecutable(path)
    else:
        loaded = poptorch.load(path)

    state = (loaded.isCompiled(), loaded.isAttachedToDevice())
    check.equal(actual=state, expected=(True, True), what="isCompiled() and isAttachedToDevice() after loading")
    assert_same(loaded(x), model(x), "the output")


def test_options_can_be_edited_while_loading(poptorch: Any, path: str) -> None:
    """edit_opts_fn changes what does not need compiling again; other changes are ignored."""
    x, final = exact.samples(3), poptorch.OutputMode.Final
    executor = poptorch.inferenceModel(torch.nn.Linear(2, 3), poptorch.Options().deviceIterations(3))
    executor.compileAndExport(path, x)

    loaded = poptorch.load(path, lambda options: options.modelName("edited").logCycleCount(True).outputMode(final))

    edited = (loaded.options.model_name, loaded.options.log_cycle_count)
    check.equal(actual=edited, expected=("edited", True), what="the options that were edited while loading")
    assert_same(loaded(x), executor(x), "the output")


def _load_into(model: Any, path: str) -> None:
    poptorch.inferenceModel(model).loadExecutable(path)


UNFIT: Dict[str, Tuple[Any, Callable[[str], Any]]] = {
    "an executable of another model": ("Error", lambda path: _load_into(torch.nn.Linear(2, 4), path)),
    "an executable of other operations": (
        "Error", lambda path: _load_into(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()), path)
    ),
    "a file without its model": (AssertionError, lambda path: poptorch.load(path)),
    "a missing file": ("Error", lambda path: _load_into(torch.nn.Linear(2, 3), f"{path}.old")),
    "a file of something else": ("Error", lambda path: poptorch.load(__file__)),
}  # fmt: skip
"""Files that cannot be loaded, of which the first three hold the executable of a linear layer without its model."""


@pytest.mark.parametrize("what", UNFIT)
def test_a_file_that_does_not_fit_is_refused(path: str, what: str) -> None:
    """What was compiled for one model cannot be run as another, and ``load`` needs the model."""
    exported(poptorch, path, export_model=False)
    error, load = UNFIT[what]

    assert_refused(f"loading {what}", error, "", lambda: load(path))


def test_the_cache_holds_one_file_for_each_program(poptorch: Any, torch: Any, tmp_path: Path) -> None:
    """Compiling the same model again uses the cache; another shape adds a file."""
    counts = []
    for size in (2, 2, 4):
        options = poptorch.Options().enableExecutableCaching(str(tmp_path))
        poptorch.inferenceModel(torch.nn.Linear(2, 3), options)(exact.samples(size))
        counts.append(len(list(tmp_path.iterdir())))

    check.equal(actual=counts, expected=[1, 1, 2], what="the number of files after each of three compilations")


def test_saving_keeps_the_trained_weights(poptorch: Any, path: str) -> None:
    """save after training writes the weights of the device, and a loaded model trains on from them."""
    from .saved import Saved

    x = exact.samples(2)
    trainer = poptorch.trainingModel(Saved())
    trainer(x, x * 0.5)
    trainer.save(path)

    loaded = poptorch.load(path)

    assert_same(loaded(x, x * 0.5)[0], trainer(x, x * 0.5)[0], "the output of the second run")
    assert_same(loaded.model.weight, trainer.model.weight, "the weight")
