"""Exports for TensorFlow Serving: a SavedModel of one function, whose variables are constants from then on.

A device's export holds an executable; this one holds the frozen graph, which any TensorFlow can run.
"""

from __future__ import annotations

import inspect
import os
import shutil
from typing import Any, Callable, List, Optional, Sequence, Union

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from ipu_conformance.emulator.tensorflow.refusals import serving as refusals

Step = Callable[..., Any]
Names = Optional[Union[str, List[str]]]


def export(
    stages: Sequence[Step],
    export_dir: str,
    inputs: Optional[Sequence[Any]] = None,
    predict_step_signature: Any = None,
    input_dataset: Any = None,
    output_names: Names = None,
    preprocessing_step: Optional[Step] = None,
    preprocessing_step_signature: Any = None,
    postprocessing_step: Optional[Step] = None,
    postprocessing_step_signature: Any = None,
    purge_export_dir: bool = False,
) -> Any:
    """Write a SavedModel of stages that follow one another, and return the function that it holds.

    Preprocessing and postprocessing run before and after them. The first stage gets ``inputs`` before what is fed.
    """
    _check_folder(export_dir, purge_export_dir)
    for name, signature in (
        ("predict_step_signature", predict_step_signature),
        ("preprocessing_step_signature", preprocessing_step_signature),
        ("postprocessing_step_signature", postprocessing_step_signature),
    ):
        if signature is not None:
            refusals.SIGNATURE_KIND(name=name, signature=signature, kind=tf.TensorSpec)
    refusals.DATASET(dataset=input_dataset, kind=tf.data.Dataset)
    first, first_signature = "predict_step", predict_step_signature
    if preprocessing_step is not None:
        first, first_signature = "preprocessing_step", preprocessing_step_signature
    refusals.TWO_SIGNATURES(name=first, signature=first_signature, dataset=input_dataset)
    given = [tf.convert_to_tensor(value) for value in inputs or ()]
    fed_to_stages = _signature(stages[0], predict_step_signature, None if preprocessing_step else input_dataset, given)
    names = _names(output_names)
    steps: List[Any] = []
    signature = fed_to_stages
    if preprocessing_step is not None:
        signature = _signature(preprocessing_step, preprocessing_step_signature, input_dataset, [])
        steps.append(_frozen(preprocessing_step, signature))
        _check_match(steps[-1], fed_to_stages, "preprocessing_step", "predict_step")
    expected = fed_to_stages
    for number, stage in enumerate(stages):
        own = (lambda *fed, stage=stage: stage(*given, *fed)) if number == 0 else stage
        steps.append(_frozen(own, expected))
        expected = [tf.TensorSpec(output.shape, output.dtype) for output in steps[-1].outputs]
    if postprocessing_step is not None:
        wanted = _signature(postprocessing_step, postprocessing_step_signature, None, [])
        _check_match(steps[-1], wanted, "predict_step", "postprocessing_step_signature")
        steps.append(_frozen(postprocessing_step, wanted))
    refusals.OUTPUT_NAMES(names=names, outputs=len(steps[-1].outputs))

    @tf.function(input_signature=signature)
    def predict(*args: Any) -> Any:
        values: List[Any] = list(args)
        for step in steps:
            values = tf.nest.flatten(step(*values))
        return dict(zip(names, values)) if names else values

    model = tf.Module()
    model.predict = predict
    tf.saved_model.save(model, export_dir)
    return predict


def _check_folder(folder: str, purge: bool) -> None:
    if os.path.isdir(folder) and purge:
        shutil.rmtree(folder)
    refusals.FOLDER(folder=folder, held=os.listdir(folder) if os.path.isdir(folder) else [])


def _signature(step: Step, signature: Any, dataset: Any, given: Sequence[Any]) -> List[Any]:
    """The inputs of a step that are fed, each by the name of its parameter."""
    fixed = [tf.TensorSpec.from_tensor(value) for value in given]
    if signature is None and dataset is not None:
        spec = dataset.element_spec
        signature = (*fixed, *((spec,) if isinstance(spec, tf.TensorSpec) else spec))
    if signature is None:
        signature = getattr(step, "input_signature", None)
    refusals.NO_SIGNATURE(step=getattr(step, "__name__", "the step"), signature=signature)
    function = getattr(step, "python_function", step)
    names = list(inspect.signature(function).parameters)[len(fixed) :]
    fed = signature[len(fixed) :] if len(signature) > len(names) else signature
    refusals.SIGNATURE_LENGTH(step=getattr(step, "__name__", "the step"), signature=fed, names=names)
    return [tf.TensorSpec(spec.shape, spec.dtype, name=name) for spec, name in zip(fed, names)]


def _frozen(step: Step, signature: Sequence[Any]) -> Any:
    concrete = tf.function(lambda *args: step(*args), autograph=False).get_concrete_function(*signature)
    return convert_variables_to_constants_v2(concrete)


def _check_match(step: Any, signature: Sequence[Any], name: str, reader: str) -> None:
    made = [(output.shape.as_list(), output.dtype) for output in step.outputs]
    wanted = [(tf.TensorShape(spec.shape).as_list(), spec.dtype) for spec in signature]
    refusals.STEPS_MISMATCH(name=name, reader=reader, made=made, wanted=wanted)


def _names(output_names: Names) -> List[str]:
    names = [output_names] if isinstance(output_names, str) else output_names
    refusals.NAMES_KIND(names=names)
    return list(names or ())
