"""PoplarExecutor: a model on the emulated device, called like the model itself."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ipu_conformance.emulator.core.trace import Recorder, Trace
from ipu_conformance.emulator.poptorch.compile import compiled as compiling
from ipu_conformance.emulator.poptorch.compile import observers
from ipu_conformance.emulator.poptorch.compile.blocks import module_repr
from ipu_conformance.emulator.poptorch.optim.read import check_weights
from ipu_conformance.emulator.poptorch.optim.update import DeviceUpdate, changed_constants, rule_for
from ipu_conformance.emulator.poptorch.options import Options
from ipu_conformance.emulator.poptorch.options.diagnostics import Error, logger
from ipu_conformance.emulator.poptorch.options.enums import ConnectionType, MeanReductionStrategy, OutputMode
from ipu_conformance.emulator.poptorch.refusals import models as refusals
from ipu_conformance.emulator.poptorch.run import calls, executables, micro_batches, outputs, wrapping
from ipu_conformance.emulator.poptorch.run.inspection import NOT_COMPILED, Inspection, RunTimes, write_trace
from ipu_conformance.emulator.poptorch.run.weights import DeviceWeights

Model = Union[torch.nn.Module, "PoplarExecutor"]


VERSION = "emulator"
"""What an executor is told of the version of PopTorch that made it."""


class PoplarExecutor(Inspection):
    """Compiles a model at its first call and runs it on the device from then on.

    A training model owns its weights: the user's model is wrapped in place, and whoever touches one of its weights gets
    the device's newest value. Attributes that are not the executor's own are the user's model's.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        options: Optional[Options],
        training: bool,
        poptorch_version: str,
        optimizer: Optional[Any] = None,
        user_model: Optional[torch.nn.Module] = None,
    ) -> None:
        if options is not None and not isinstance(options, Options):
            raise Error(f"Invalid type: 'options' is of type {type(options).__name__} (Expected poptorch.Options)")
        refusals.OPTIMIZER_OF_INFERENCE(training=training, optimizer=optimizer)
        self._poptorch_version = poptorch_version
        self._user_model = model if user_model is None else user_model
        # A shallow copy shares the weights, and reading it is not a touch by the user; compiling copies it again.
        self._plain = wrapping.shallow(model)
        self._signature = inspect.signature(self._plain.forward)
        self._told_of_layout = False
        self._options = _resolved(Options() if options is None else options, training)
        self._training = training
        self._optimizer = optimizer
        self._rule: Optional[DeviceUpdate] = None
        """The optimizer as it was when it was set: later changes to it are not seen."""
        if training:
            self._options = _reduced(self._options, self._update_rule(optimizer))
            self._rule = self._update_rule(optimizer)
        self._compiled: Optional[compiling.Compiled] = None
        self._attached = False
        self._dirty = False
        self._host_version = 0
        self._seen_version: Tuple[Optional[int], int] = (None, 0)
        self._seed = self._options.random_seed if self._options.random_seed is not None else _any_seed()
        self._runs = 0
        self._run_times = RunTimes()
        self._recording = self._options.profile_dir is not None
        self._trace: Optional[Trace] = None
        if training:
            wrapping.wrap(model, self)

    # Calling.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on the device and return what its output mode selects."""
        refusals.OFFLINE(connection=self._options.connection_type)
        call = calls.Call(self._signature, args, kwargs)
        self._tell_of_layout(call)
        if self._compiled is None:
            self._compile(call)
        else:
            self._compiled.expected.check(call)
        if not self._attached:
            self.attachToDevice()
        self._follow_trainer()
        return self._run(call)

    def _run(self, call: calls.Call) -> Any:
        ready = self.compiled
        machine = ready.machine
        times = [time.perf_counter()]
        tensors = call.tensors
        if self._options.synthetic_data:
            tensors = micro_batches.synthetic_inputs(tensors, machine.seed + machine.runs)
        dealt = ready.feed.deal(tensors)
        machine.begin(dealt)
        times.append(time.perf_counter())
        recorder = Recorder(ready.plan.replicas) if self._recording else None
        # On a failed run the weights are as the device left them, so they count as changed too.
        self._dirty = self._training
        ready.engine.run(dealt, recorder)
        ready.feed.write_back(tensors)
        times.append(time.perf_counter())
        result = self._returned(ready)
        machine.end()
        self._runs = machine.runs
        times.append(time.perf_counter())
        returned = sum(leaf is not None for leaf in ready.captured.outputs)
        self._run_times.add(
            times, len(call.places), returned, ready.layout.device_iterations * ready.layout.accumulation
        )
        if recorder is not None:
            self._trace = recorder.trace()
            if self._options.profile_dir is not None:
                write_trace(self._trace, self._options)
        return result

    def _returned(self, ready: compiling.Compiled) -> Any:
        slot_outputs: outputs.SlotOutputs = ready.machine.outputs
        if self._options.synthetic_data:
            slot_outputs = outputs.unread(slot_outputs)
        leaves: List[Any] = []
        for number, node in enumerate(ready.captured.outputs):
            if node is None:
                leaves.append(ready.captured.constants[number])
            else:
                leaves.append(outputs.guarded(ready.returned.join(slot_outputs, number)))
        for anchor in ready.anchors:
            ready.anchored[anchor.name] = anchor.returned.join(slot_outputs, anchor.leaf)
        return ready.captured.rebuild(leaves)

    def _follow_trainer(self) -> None:
        """An inference model takes over what its paired training model has brought to the host since the last run."""
        if self._training:
            return
        trainer = wrapping.trainer_of(self._user_model)
        if trainer is None:
            return
        trainer.copyWeightsToHostIfNeeded()
        if (id(trainer), trainer._host_version) != self._seen_version:
            self.copyWeightsToDevice()

    # Compiling.

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the model for arguments like these, without running it."""
        if self._compiled is not None:
            logger.warning("Call to compile() ignored: the model is already compiled")
            return
        call = calls.Call(self._signature, args, kwargs)
        self._tell_of_layout(call)
        self._compile(call)
        if self._options.connection_type == ConnectionType.Always and not self._attached:
            self.attachToDevice()

    def _tell_of_layout(self, call: calls.Call) -> None:
        """Warn once of inputs that are copied before they are sent."""
        if not self._told_of_layout and not all(tensor.is_contiguous() for tensor in call.tensors):
            logger.warning("At least one input tensor is not contiguous: non-contiguous tensors will be converted.")
            self._told_of_layout = True

    def _compile(self, call: calls.Call) -> None:
        if any(tensor.requires_grad for tensor in call.tensors):
            logger.warning("Input tensor has requires_grad=True set: it is detached, inputs have no backward pass")
        with observers.compilation():
            self._make_ready(call)
        executables.remember(self)
        logger.info("Compiled the model in %.3f s", self.compiled.seconds)

    def _make_ready(self, call: calls.Call) -> None:
        trainer = None if self._training else wrapping.trainer_of(self._user_model)
        if trainer is not None:
            trainer.copyWeightsToHostIfNeeded()
        weights = DeviceWeights(self._plain, self._options.replication_factor, self._training)
        if self._training:
            with wrapping.untouched():
                check_weights(self._optimizer, dict(self._plain.named_parameters()))
        with wrapping.untouched():
            self._compiled = compiling.compile_model(
                self._plain,
                call,
                self._options,
                training=self._training,
                update=self._rule,
                weights=weights,
                seed=self._seed,
            )
        self._compiled.machine.runs = self._runs

    def _update_rule(self, optimizer: Any) -> DeviceUpdate:
        with wrapping.untouched():
            return rule_for(optimizer, dict(self._plain.named_parameters()), self._options)

    # The device.

    def attachToDevice(self) -> None:
        """Put the model on the device: weights, optimizer state and random state."""
        ready = self.compiled
        refusals.ATTACHED_OFFLINE(connection=self._options.connection_type)
        refusals.ATTACHED_TWICE(attached=self._attached)
        self._attached = True
        self._set_random_state(self._seed, self._runs)
        self._upload()
        _exchange_state(self._optimizer, ready, "to_device")

    def detachFromDevice(self) -> None:
        """Take the model off the device and keep what has changed there."""
        ready = self.compiled
        refusals.NOT_ATTACHED(attached=self._attached)
        self.copyWeightsToHostIfNeeded()
        _exchange_state(self._optimizer, ready, "to_host")
        self._seed, self._runs = ready.machine.seed, ready.machine.runs
        self._attached = False

    def destroy(self) -> None:
        """Copy the weights to the host, unwrap the user's model and release the device; nothing before compiling."""
        if self._compiled is None:
            return
        if self._attached:
            self.detachFromDevice()
        self._compiled.engine.close()
        self._compiled, self._dirty = None, False
        if self._training:
            wrapping.unwrap(self._user_model)

    def __del__(self) -> None:
        # A half-built executor has nothing to release, and nobody could catch an error from here.
        with contextlib.suppress(Exception):
            self.destroy()
            if self._training:
                wrapping.unwrap(self._user_model)

    # Weights.

    def copyWeightsToHost(self) -> None:
        """Copy the weights from the device to the user's model."""
        self._require_device()
        self.compiled.weights.download()
        self._dirty = False
        self._host_version += 1

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copy the weights if the device has newer ones, and return whether it had."""
        if not self._dirty:
            return False
        logger.debug("Implicit copyWeightsToHost()")
        self._dirty = False
        self.copyWeightsToHost()
        return True

    def copyWeightsToDevice(self) -> None:
        """Copy the weights from the user's model to the device; newer ones there are lost."""
        self._require_device()
        self._upload()

    def _upload(self) -> None:
        self._dirty = False
        trainer = None if self._training else wrapping.trainer_of(self._user_model)
        self._seen_version = (None, 0) if trainer is None else (id(trainer), trainer._host_version)
        self.compiled.weights.upload()
        if self._training:
            self._host_version += 1

    def copyNamedBuffersToDevice(self) -> None:
        """Copy the buffers that the option updatableNamedBuffers lists from the user's model to the device."""
        self._require_device()
        names = self._options.updatable_named_buffers
        refusals.NO_NAMED_BUFFERS(names=names)
        known = {name for name, _ in self._plain.named_buffers()}
        for name in names:
            refusals.UNKNOWN_BUFFER(name=name, known=known)
        with wrapping.untouched():
            held = dict(self._user_model.named_buffers())
        for name in names:
            device = self.compiled.weights.example[name]
            refusals.CHANGED_BUFFER(name=name, before=tuple(device.shape), now=tuple(held[name].shape))
        self.compiled.weights.upload(names)

    def _require_device(self) -> None:
        if self._compiled is None:
            raise Error(NOT_COMPILED)
        refusals.NOT_ATTACHED(attached=self._attached)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Load the user's model and, if it is on the device, the device with it."""
        result = self._user_model.load_state_dict(state_dict, strict=strict)
        if self._attached:
            self.copyWeightsToDevice()
        return result

    # The optimizer.

    def setOptimizer(self, optimizer: Any) -> None:
        """Use this optimizer from the next call on; changes to an optimizer apply when it is set again."""
        if not self._training:
            raise Error("setOptimizer was called on an inference model: it has no optimizer")
        rule = self._update_rule(optimizer)
        if self._compiled is None:
            self._options = _reduced(self._options, rule)
        else:
            changed_constants(self._compiled.update, rule)
            self._compiled.update = rule
            self._compiled.machine.set_update(rule)
            if self._attached and optimizer is not self._optimizer:
                _exchange_state(optimizer, self._compiled, "to_device")
        self._optimizer, self._rule = optimizer, rule

    # Random numbers.

    @property
    def rng_state(self) -> List[int]:
        """The state of the device's random numbers: setting what was read makes runs draw the same again."""
        if self._compiled is None:
            raise Error(NOT_COMPILED)
        machine = self._compiled.machine
        return [machine.seed, machine.runs]

    @rng_state.setter
    def rng_state(self, state: Sequence[int]) -> None:
        if self._compiled is None:
            raise Error(NOT_COMPILED)
        seed, runs = state
        self._set_random_state(int(seed), int(runs))

    def _set_random_state(self, seed: int, runs: int) -> None:
        """Draw from now on what that seed gives after so many runs."""
        machine = self.compiled.machine
        machine.seed, machine.runs = self._seed, self._runs = seed, runs

    # Executables.

    def compileAndExport(self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any) -> None:
        """Compile for arguments like these and save the result."""
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Save the compiled model, with the model itself unless ``export_model`` is off."""
        executables.save(self, filename, export_model, save_rng_state)

    def loadExecutable(self, filename: str) -> None:
        """Compile from a file instead of from arguments."""
        executables.load_into(self, filename)

    # The user's model.

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(attr)
        return getattr(self._user_model, attr)

    def __repr__(self) -> str:
        return module_repr(self._user_model)


def _resolved(options: Options, training: bool) -> Options:
    """The options of one model: frozen, and with the output mode that Default stands for."""
    options._freeze()
    options = options.clone()
    if options.output_mode == OutputMode.Default:
        options.outputMode(outputs.mode_of(options, training)[0])
    options._freeze()
    return options


def _reduced(options: Options, rule: Any) -> Options:
    """The options with the strategy of means that the optimizer's accumulators need."""
    if not rule.running_mean or options.Training._reduction_strategy_set:
        return options
    options = options.clone()
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(MeanReductionStrategy.Running)
    options._freeze()
    return options


def _any_seed() -> int:
    return int.from_bytes(os.urandom(7), "big")


def _exchange_state(optimizer: Any, ready: compiling.Compiled, direction: str) -> None:
    """Move the state of a poptorch optimizer to or from the device; that of a torch optimizer stays there."""
    exchange = getattr(optimizer, f"_ipu_state_{direction}", None)
    if exchange is not None:
        exchange(ready.machine.state)


def inferenceModel(model: Model, options: Optional[Options] = None) -> PoplarExecutor:
    """An executor that runs the forward pass; its weights follow those of a training model of the same model."""
    if isinstance(options, Options):
        refusals.ACCUMULATED_INFERENCE(accumulation=options.Training.gradient_accumulation)
    return PoplarExecutor(_module(model), options, False, VERSION)


def trainingModel(model: Model, options: Optional[Options] = None, optimizer: Optional[Any] = None) -> PoplarExecutor:
    """An executor that runs forward and backward passes and updates the weights, by SGD with lr 0.01 by default."""
    module = _module(model)
    refusals.WRAPPED_TWICE(wrapped=wrapping.is_wrapped(module))
    if optimizer is None:
        trainable = [p for p in module.parameters() if p.requires_grad]
        # torch makes no optimizer of nothing; a group without weights updates none.
        optimizer = torch.optim.SGD([{"params": trainable}], lr=0.01)
    return PoplarExecutor(module, options, True, VERSION, optimizer)


def _module(model: Model) -> torch.nn.Module:
    module = model._user_model if isinstance(model, PoplarExecutor) else model
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{type(model).__name__} was given: wrap a torch.nn.Module")
    return module
