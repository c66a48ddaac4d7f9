"""The methods that a model has on the IPU, and how it then fits, evaluates and predicts."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Optional, Sequence

from ipu_conformance.emulator.core.limits import LimitError, check_tensorflow
from ipu_conformance.emulator.core.schedules import SharedDeviceError
from ipu_conformance.emulator.core.topology import TopologyError, keras_replicas
from ipu_conformance.emulator.tensorflow.keras import (
    assignment,
    callbacks,
    execution,
    feeding,
    first_execution,
    library,
    options,
    partition,
    saving,
    serving,
    stages,
)
from ipu_conformance.emulator.tensorflow.refusals import keras as refusals
from ipu_conformance.emulator.tensorflow.run import variables
from ipu_conformance.emulator.tensorflow.run.accumulation import Method


class State:
    """What one model remembers of its options, beside Keras' own attributes."""

    def __init__(self) -> None:
        self.accumulation = options.Accumulation()
        self.pipelining = options.Pipelining()
        self.metric_reduction = options.ReplicatedMetricReductionMethod.NONE
        self.asynchronous = False
        self.infeed: Dict[str, Any] = {}
        self.outfeed: Dict[str, Any] = {}
        self.stages: Optional[List[Any]] = None
        self.network: Any = None
        self.losses: Optional[List[Any]] = None
        self.keys: Dict[str, Any] = {}
        self.program: Optional[str] = None
        self.running: List[str] = []
        self.steps_of_epoch = 0
        self.observed = False
        self.last_run: Optional[execution.LastRun] = None
        self.last_function: Any = None
        """The function of the last run: what the device has executed, of whichever phase."""


class ModelExtension:
    """The IPU's methods of a model; those of other kinds of models derive from it, see ``extensions``."""

    # Options

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: Optional[int] = None,
        device_mapping: Optional[Sequence[int]] = None,
        accumulate_outfeed: Optional[bool] = None,
        gradient_accumulation_reduction_method: Any = "sum",
        **pipelining_kwargs: Any,
    ) -> None:
        """Set how a pipelined model is run; it takes effect when a program is next compiled."""
        state = self._ipu
        state.pipelining = options.pipelining(
            gradient_accumulation_steps_per_replica,
            device_mapping,
            accumulate_outfeed,
            gradient_accumulation_reduction_method,
            pipelining_kwargs,
        )

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: Optional[int] = None,
        gradient_accumulation_reduction_method: Any = "sum",
        use_v2_gradient_accumulation_optimizer: bool = False,
        **gradient_accumulation_optimizer_kwargs: Any,
    ) -> None:
        """Set how many micro-batches a replica accumulates before an update, and how."""
        self._ipu.accumulation = options.accumulation(
            gradient_accumulation_steps_per_replica,
            gradient_accumulation_reduction_method,
            use_v2_gradient_accumulation_optimizer,
            gradient_accumulation_optimizer_kwargs,
        )

    def set_replication_options(self, replicated_metric_reduction_method: Any = "NONE") -> None:
        """Set what is returned for metrics when there are several replicas."""
        self._ipu.metric_reduction = options.metric_reduction(replicated_metric_reduction_method)

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Choose whether callbacks see every step, while later executions already run, or one step per execution."""
        self._ipu.asynchronous = bool(asynchronous)

    def set_infeed_queue_options(self, **kwargs: Any) -> None:
        """Set the options of the queue that feeds the model."""
        options.refuse_reserved(kwargs, options.RESERVED_OF_INFEED, "set_infeed_queue_options")
        self._ipu.infeed = kwargs

    def set_outfeed_queue_options(self, **kwargs: Any) -> None:
        """Set the options of the queue that brings results to the host."""
        options.refuse_reserved(kwargs, options.RESERVED_OF_OUTFEED, "set_outfeed_queue_options")
        self._ipu.outfeed = kwargs

    def export_for_ipu_serving(
        self,
        export_dir: str,
        batch_size: Optional[int] = None,
        output_names: Any = None,
        preprocessing_step: Any = None,
        preprocessing_step_signature: Any = None,
        postprocessing_step: Any = None,
        postprocessing_step_signature: Any = None,
        purge_export_dir: bool = False,
    ) -> Any:
        """Write a SavedModel of the model in inference, and return the function that it holds."""
        return serving.export(
            self, export_dir, batch_size, output_names, preprocessing_step, preprocessing_step_signature,
            postprocessing_step, postprocessing_step_signature, purge_export_dir,
        )  # fmt: skip

    # Stages

    def get_pipeline_stage_assignment(self) -> List[Any]:
        """The stage of every call of a layer, in the order of execution."""
        return assignment.of_functional(self._ipu_network(), self._ipu_kind())

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: List[Any]) -> None:
        """Set the stage of every call of a layer."""
        assignment.set_functional(self._ipu_network(), pipeline_stage_assignment, self._ipu_kind())

    def reset_pipeline_stage_assignment(self) -> None:
        """Take back all stages: the model is not pipelined any more."""
        assignment.reset_functional(self._ipu_network())

    def print_pipeline_stage_assignment_summary(self, line_length: Optional[int] = None, print_fn: Any = None) -> None:
        """Print a table of layers and stages."""
        assignment.summary(self, self._ipu_calls(), line_length, print_fn)

    # Running

    def build(self, *arguments: Any, **settings: Any) -> Any:
        """Make the variables of the model, see ``tf.keras.Model.build``."""
        with stages.building(self):
            return super().build(*arguments, **settings)  # type: ignore[misc]

    def fit(self, *arguments: Any, **settings: Any) -> Any:
        """Train the model, see ``tf.keras.Model.fit``."""
        return self._ipu_run("train", super().fit, arguments, settings)  # type: ignore[misc]

    def evaluate(self, *arguments: Any, **settings: Any) -> Any:
        """Evaluate the model, see ``tf.keras.Model.evaluate``."""
        return self._ipu_run("evaluate", super().evaluate, arguments, settings)  # type: ignore[misc]

    def predict(self, *arguments: Any, **settings: Any) -> Any:
        """Predict with the model, see ``tf.keras.Model.predict``."""
        return self._ipu_run("predict", super().predict, arguments, settings)  # type: ignore[misc]

    def train_on_batch(self, *arguments: Any, **settings: Any) -> Any:
        """One step on one replica, see ``tf.keras.Model.train_on_batch``."""
        self._ipu_refuse_single_batch("train_on_batch", "train")
        return super().train_on_batch(*arguments, **settings)  # type: ignore[misc]

    def test_on_batch(self, *arguments: Any, **settings: Any) -> Any:
        """One step on one replica, see ``tf.keras.Model.test_on_batch``."""
        self._ipu_refuse_single_batch("test_on_batch", "evaluate")
        return super().test_on_batch(*arguments, **settings)  # type: ignore[misc]

    def predict_on_batch(self, *arguments: Any, **settings: Any) -> Any:
        """One step on one replica, see ``tf.keras.Model.predict_on_batch``."""
        self._ipu_refuse_single_batch("predict_on_batch", "predict")
        return super().predict_on_batch(*arguments, **settings)  # type: ignore[misc]

    def make_train_function(self, force: bool = False) -> Any:
        """The function of one execution in training."""
        return self._ipu_function("train", "train_function", super().make_train_function, force)  # type: ignore[misc]

    def make_test_function(self, force: bool = False) -> Any:
        """The function of one execution in evaluation."""
        return self._ipu_function("evaluate", "test_function", super().make_test_function, force)  # type: ignore[misc]

    def make_predict_function(self, force: bool = False) -> Any:
        """The function of one execution in prediction."""
        make = super().make_predict_function  # type: ignore[misc]
        return self._ipu_function("predict", "predict_function", make, force)

    @property
    def losses(self) -> Any:
        """The losses that layers add; while a pipeline's last stage is built, what all stages have added."""
        given = self._ipu.losses
        return super().losses if given is None else given  # type: ignore[misc]

    def _validate_and_get_metrics_result(self, logs: Any) -> Any:
        """The logs of an epoch are those of its last step on the device."""
        state = self._ipu
        if state.asynchronous:
            return callbacks.last_step(logs)
        if state.running and state.keys.get(state.running[-1]) is not None:
            return logs
        return super()._validate_and_get_metrics_result(logs)  # type: ignore[misc]

    def get_config(self) -> Dict[str, Any]:
        """What the model can be made from again, its stages and options among it."""
        return {**super().get_config(), **saving.described(self)}  # type: ignore[misc]

    # What the execution asks

    @property
    def _ipu(self) -> State:
        """The options, made on first use; Keras does not track them."""
        state: Optional[State] = self.__dict__.get("_ipu_state")
        if state is None:
            state = self.__dict__["_ipu_state"] = State()
        return state

    def _ipu_saved_stages(self) -> Any:
        """The stages as a configuration holds them; those of a subclassed model are in its own code."""
        return saving.stages_of(self) if self._ipu_is_graph() else None

    def _ipu_restore_stages(self, listed: Any) -> None:
        saving.restore_stages(self, listed)

    def _ipu_is_graph(self) -> bool:
        """Whether the model was made of inputs and outputs, as a subclass may be too."""
        return bool(getattr(self, "_is_graph_network", False))

    def _ipu_kind(self) -> Any:
        if self._ipu_is_graph():
            return assignment.FunctionalLayerPipelineStageAssignment
        return assignment.ModelLayerPipelineStageAssignment

    def _ipu_network(self) -> Any:
        """The graph of layers: a subclassed model gets one from calling it on the shapes that it was built with."""
        if self._ipu_is_graph():
            return self
        state = self._ipu
        if state.network is None:
            spec = self._ipu_input_spec()
            refusals.UNKNOWN_LAYERS(model=self.name, inputs=spec)  # type: ignore[attr-defined]
            state.network = execution.traced(self, spec)
        return state.network

    def _ipu_input_spec(self) -> Any:
        return self._saved_model_inputs_spec or getattr(self, "_build_input_shape", None)  # type: ignore[attr-defined]

    def _ipu_meet(self, element: Any) -> None:
        """A subclassed model that was never called is called on the shapes of its data: it may have stages."""
        if not self._ipu_is_graph() and not self.built:  # type: ignore[attr-defined]
            execution.call_once(self, element)

    def _ipu_calls(self) -> List[partition.Call]:
        return partition.opened(partition.functional_calls(self._ipu_network()))

    def _ipu_pipelined(self) -> bool:
        """Whether any layer has been assigned to a stage."""
        if not self._ipu_is_graph() and self._ipu.network is None and not stages.used_by(self):
            return False
        return partition.has_stages(self._ipu_network())

    def _ipu_mapping(self) -> Sequence[int]:
        """The IPU of every stage; one stage on IPU 0 for a model that is not pipelined."""
        if not self._ipu_pipelined():
            return (0,)
        number = partition.check(self._ipu_calls())
        mapping = self._ipu.pipelining.device_mapping
        if mapping is None:
            return tuple(range(number))
        refusals.MAPPING_LENGTH(entries=len(mapping), stages=number)
        return mapping

    def _ipu_replicas(self) -> int:
        """How often the model fits on the IPUs of the strategy's device."""
        strategy = self.distribute_strategy  # type: ignore[attr-defined]
        try:
            return keras_replicas(strategy.num_ipus, self._ipu_mapping())
        except TopologyError as error:
            raise ValueError(str(error)) from None

    def _ipu_accumulation(self, phase: str) -> int:
        """Micro-batches between two updates; in inference those that pass a pipeline before it is empty."""
        state = self._ipu
        if not self._ipu_pipelined():
            return (state.accumulation.count or 1) if phase == "train" else 1
        if phase != "train":
            return 1 if state.pipelining.schedule == "sequential" else len(self._ipu_mapping())
        refusals.NO_COUNT(count=state.pipelining.count)
        return state.pipelining.count or 1

    def _ipu_method(self) -> Method:
        state = self._ipu
        return state.pipelining.method if self._ipu_pipelined() else state.accumulation.method

    def _ipu_reduced(self, by_replica: List[Any]) -> Any:
        """The logs of one step from those of its replicas."""
        return execution.reduced(by_replica, self._ipu.metric_reduction)

    def _ipu_check_execution(self, steps: int, *, training: bool) -> None:
        """An execution of so many steps is what the accumulation and the schedule of the pipeline allow."""
        pipelined = self._ipu_pipelined()
        if pipelined and training and self._ipu.accumulation.count is not None:
            feeding.warn("The model is pipelined: the options of `set_gradient_accumulation_options` are not used.")
        if training:
            count = self._ipu_accumulation("train")
            feeding.check_accumulation(steps, count, pipelined=pipelined)
            steps = count
        if pipelined:
            self._ipu_check_schedule(steps, training)

    def _ipu_check_schedule(self, count: int, training: bool) -> None:
        import tensorflow as tf

        try:
            check_tensorflow(self._ipu_mapping(), self._ipu.pipelining.schedule, count, training=training)
        except SharedDeviceError as error:
            raise NotImplementedError(str(error)) from None
        except LimitError as error:
            raise tf.errors.FailedPreconditionError(None, None, str(error)) from None

    def _ipu_key(self, phase: str) -> Any:
        """What a compiled program depends on; None where Keras' own function is what the device does."""
        state, count, replicas = self._ipu, self._ipu_accumulation(phase), self._ipu_replicas()
        pipelined = self._ipu_pipelined()
        if not pipelined and count == 1 and replicas == 1 and not (state.asynchronous and phase != "predict"):
            return None
        cut = tuple(call.stage for call in self._ipu_calls()) if pipelined else ()
        return replicas, count, cut, self._ipu_method(), state.pipelining, state.metric_reduction, state.asynchronous

    def _ipu_function(self, phase: str, attribute: str, make: Any, force: bool) -> Any:
        key = self._ipu_key(phase)
        if key != self._ipu.keys.get(phase):
            force = True
        self._ipu.keys[phase] = key
        if key is None and phase == "predict":
            function = make(force)
            if not hasattr(function, first_execution.WATCHED):
                function = execution.noted(self, function)
        elif force or getattr(self, attribute) is None:
            function = (execution.step_function_of if key is None else execution.function_of)(self, phase)
        else:
            function = getattr(self, attribute)
        watched = first_execution.watched(self, phase, lambda: execution.plan_of(self, phase), function)
        setattr(self, attribute, watched)
        return watched

    def _ipu_run(self, phase: str, run: Any, arguments: Any, settings: Any) -> Any:
        """Make the checks that need no data, load the program, and run Keras' own method."""
        refusals.EAGER(eager=self.run_eagerly)  # type: ignore[attr-defined]
        running = self._ipu.running
        if self._ipu.asynchronous:
            arguments, settings = (), callbacks.stepped(self, run, arguments, settings)
        self._ipu_load(phase)
        running.append(phase)
        try:
            return run(*arguments, **settings)
        finally:
            running.pop()
            if running:
                self._ipu_load(running[-1])

    def _ipu_load(self, phase: str) -> None:
        """Another program begins with the values of replica 0 on every replica."""
        state = self._ipu
        if state.program != phase:
            variables.broadcast(execution.all_variables(self))
            state.program = phase

    def _ipu_refuse_single_batch(self, method: str, phase: str) -> None:
        refusals.SINGLE_BATCH(method=method, plain=self._ipu_key(phase) is None)

    @contextlib.contextmanager
    def _ipu_losses(self, losses: List[Any]) -> Iterator[None]:
        """Inside, ``losses`` are these."""
        self._ipu.losses = losses
        try:
            yield
        finally:
            self._ipu.losses = None


class FunctionalExtension(ModelExtension):
    """The IPU's methods of a model that is made of inputs and outputs."""

    def _init_graph_network(self, *args: Any, **kwargs: Any) -> None:
        """Where one call has a stage, all have, and they follow one another."""
        super()._init_graph_network(*args, **kwargs)  # type: ignore[misc]
        calls = self._ipu_calls()
        if any(call.stage is not None for call in calls):
            partition.check(calls)

    def _init_set_name(self, name: Optional[str], zero_based: bool = True) -> None:
        """Stock calls a model of its own class ``model``, and one of a subclass as that is called."""
        if not name and library.functional_class() in type(self).__bases__:
            name = library.unique_name("model")
        super()._init_set_name(name, zero_based)  # type: ignore[misc]


class SequentialExtension(ModelExtension):
    """The IPU's methods of a chain of layers, one stage a layer."""

    def get_pipeline_stage_assignment(self) -> List[Any]:
        """An assignment of every layer, without a stage where none was set."""
        return assignment.of_sequential(self, self._ipu.stages)

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: List[Any]) -> None:
        """Set the stage of every layer: integers, or an assignment for each."""
        self._ipu.stages = assignment.checked_sequential(self, pipeline_stage_assignment)

    def reset_pipeline_stage_assignment(self) -> None:
        """Take back all stages: the model is not pipelined any more."""
        self._ipu.stages = None

    def _ipu_saved_stages(self) -> Any:
        return saving.stages_of_chain(self, self._ipu.stages)

    def _ipu_restore_stages(self, listed: Any) -> None:
        self._ipu.stages = saving.read_chain(self, listed)

    def _ipu_network(self) -> Any:
        return self

    def _ipu_calls(self) -> List[partition.Call]:
        assigned = self._ipu.stages
        if assigned is not None and len(assigned) != len(self.layers):  # type: ignore[attr-defined]
            raise ValueError(
                f"{self.name} has {len(self.layers)} layers, and stages were assigned to {len(assigned)}: call "  # type: ignore[attr-defined]
                "set_pipeline_stage_assignment again."
            )
        return partition.sequential_calls(self, assigned)

    def _ipu_pipelined(self) -> bool:
        return self._ipu.stages is not None

    def _ipu_meet(self, element: Any) -> None:
        """A chain knows its layers before it is built."""
