"""Stock's estimator with an infeed in place of features, and a program in place of the model function."""

from __future__ import annotations

import abc
import functools
from typing import Any, Iterator, List, Optional, Sequence

import tensorflow as tf
from tensorflow.python.platform import tf_logging as logging
from tensorflow.python.util import function_utils

from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.config.ipu_config import IPUConfig, configure_ipu_system
from ipu_conformance.emulator.tensorflow.estimator import feeds, hooks
from ipu_conformance.emulator.tensorflow.estimator.program import Call, Program
from ipu_conformance.emulator.tensorflow.estimator.run_config import Estimator, EstimatorSpec, IPURunConfig, RunConfig
from ipu_conformance.emulator.tensorflow.estimator.specs import of_model_fn
from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.emulator.tensorflow.run.infeed import IPUInfeedQueue


class BaseEstimator(Estimator, abc.ABC):
    """An estimator whose steps are iterations of loops on the device; see the package for how a kind plugs in."""

    _params: Any
    last_program: Any = None
    """What the device was given last."""

    def __init__(
        self, model_fn: Any, model_dir: Any = None, config: Any = None, params: Any = None, warm_start_from: Any = None
    ) -> None:
        refusals.CONFIG(config=config, kind=RunConfig)
        if config.train_distribute is not None or config.eval_distribute is not None:
            raise ValueError(
                "The RunConfig has a distribution strategy: leave it out, and ask for replicas with num_replicas of "
                "the IPURunConfig."
            )
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    @abc.abstractmethod
    def _program(self, call: Call) -> Program:
        """What is compiled for a call."""

    @property
    def _run(self) -> IPURunConfig:
        run: IPURunConfig = self._config.ipu_run_config
        return run

    def _assert_members_are_not_overridden(self) -> None:
        """Stock allows no subclass to override what it calls."""

    def predict(
        self,
        input_fn: Any,
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: Any = None,
        yield_single_examples: bool = True,
        num_predictions: Optional[int] = None,
    ) -> Iterator[Any]:
        """Predictions without end, or the first ``num_predictions`` of them."""
        refusals.PREDICTIONS(number=num_predictions)
        loops = super().predict(input_fn, predict_keys, hooks, checkpoint_path, yield_single_examples=False)
        number = 0
        for loop in loops:
            for prediction in self._parted(loop, yield_single_examples):
                yield prediction
                number += 1
                if number == num_predictions:
                    loops.close()
                    return

    def _parted(self, loop: Any, single_examples: bool) -> Iterator[Any]:
        for index in range(len(tf.nest.flatten(loop)[0])):
            batch = tf.nest.map_structure(lambda leaf: leaf[index], loop)  # noqa: B023
            if not single_examples:
                yield batch
            elif not isinstance(batch, dict):
                yield from batch
            else:
                for position in range(self._extract_batch_length(batch)):
                    yield {key: value[position] for key, value in batch.items()}

    def _convert_train_steps_to_hooks(self, steps: Optional[int], max_steps: Optional[int]) -> List[Any]:
        each = self._run.iterations_per_loop
        refusals.STEPS(steps=steps, each=each)
        return [] if steps is None and max_steps is None else [hooks.StopAfterLoops(each, steps, max_steps)]

    def _convert_eval_steps_to_hooks(self, steps: Any) -> List[Any]:
        each = self._run.iterations_per_loop
        refusals.EVALUATION_STEPS(steps=steps)
        refusals.STEPS(steps=steps, each=each)
        return [*super()._convert_eval_steps_to_hooks(steps // each), hooks.CountSteps(each)]

    def _train_with_estimator_spec(
        self, estimator_spec: Any, worker_hooks: Any, hooks: Any, global_step_tensor: Any, saving_listeners: Any
    ) -> Any:
        given = [*hooks, *estimator_spec.training_hooks]
        savers = self._savers(given, estimator_spec.scaffold)
        # A chief's hooks end first: a loop that ran out of data leaves no state worth saving.
        chief = [*worker_hooks, *(saver for saver in savers if saver not in given)]
        spec = estimator_spec._replace(training_chief_hooks=chief)
        return super()._train_with_estimator_spec(spec, [], hooks, global_step_tensor, saving_listeners)

    def _savers(self, given: Sequence[Any], scaffold: Any) -> List[Any]:
        """Save checkpoints after the loop that reaches their step: stock's hook counts runs for steps."""
        savers = [hook for hook in given if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)]
        if not savers and (self._config.save_checkpoints_secs or self._config.save_checkpoints_steps):
            savers = [
                tf.compat.v1.train.CheckpointSaverHook(
                    self._model_dir,
                    save_secs=self._config.save_checkpoints_secs,
                    save_steps=self._config.save_checkpoints_steps,
                    scaffold=scaffold,
                    save_graph_def=self._config.checkpoint_save_graph_def,
                )
            ]
        for saver in savers:
            saver._set_steps_per_run(self._run.iterations_per_loop)
        return savers

    def _create_global_step(self, graph: Any) -> Any:
        """Stock's global step as a resource, also in programs that disable the behaviour of version 2."""
        v1 = tf.compat.v1
        with v1.variable_scope(v1.get_variable_scope(), use_resource=True, auxiliary_name_scope=False):
            return super()._create_global_step(graph)

    def _get_features_and_labels_from_input_fn(self, input_fn: Any, mode: str) -> Any:
        self._configure()
        infeed = feeds.infeed(self._call_input_fn(input_fn, mode), self._run)
        return infeed, None, [hooks.FeedHook(infeed)]

    def _get_features_from_input_fn(self, input_fn: Any, mode: str) -> Any:
        infeed, _, own_hooks = self._get_features_and_labels_from_input_fn(input_fn, mode)
        return infeed, own_hooks

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        model_fn = functools.partial(self._call_user, mode=mode, config=config)
        if not isinstance(features, IPUInfeedQueue):
            return _for_host(model_fn(features, labels))
        program = self._program(Call(mode, self._run, features, model_fn))
        spec = program.build()
        self.last_program = program.built
        return spec

    def _call_user(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """What the user's function returns for those of the arguments that it takes."""
        known = {"labels": labels, "mode": mode, "params": self._params_of(mode), "config": config}
        taken = function_utils.fn_args(self._model_fn)
        refusals.LABELS(labels=labels, taken=taken)
        returned = self._model_fn(features=features, **{name: known[name] for name in known if name in taken})
        if tf.compat.v1.get_default_graph().building_function:
            _warn_of_summaries()
        return returned

    def _params_of(self, mode: str) -> Any:
        """The parameters that functions of the user are given."""
        return self.params

    def _call_input_fn(self, input_fn: Any, mode: str, input_context: Any = None) -> Any:
        own: Any = self._params
        self._params = self._params_of(mode)
        try:
            return super()._call_input_fn(input_fn, mode, input_context)
        finally:
            self._params = own

    def _configure(self) -> None:
        """Put the options of the configuration in force; without any, those that are in force stay."""
        options = self._run.ipu_options
        if options is None and not system.configured():
            options = IPUConfig()
        if options is not None:
            configure_ipu_system(options)
        self._run.check_ipus(system.ipus(self._run.ordinal))


def _for_host(returned: Any) -> Any:
    """Stock's spec of what a model function returned for the host's own graph, as an export needs it."""
    spec = of_model_fn(returned)
    return EstimatorSpec(mode=spec.mode, predictions=spec.predictions, loss=spec.loss, train_op=spec.train_op)


def _warn_of_summaries() -> None:
    """Summaries belong to the host; those of a model function stay inside of its loop."""
    if tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES):
        logging.warning(
            "The model_fn makes summaries inside of a loop on the device, which are not written: give their tensors to "
            "`host_call` and make the summaries there."
        )
