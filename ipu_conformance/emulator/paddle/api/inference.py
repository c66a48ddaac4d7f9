"""``paddle.inference`` on the IPU: predictors of a saved inference model."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle
from paddle.base import core, framework

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.api.inference_config import settings_of
from ipu_conformance.emulator.paddle.compile import inference_model
from ipu_conformance.emulator.paddle.errors import InvalidArgument, PreconditionNotMet, Unimplemented


class Handle:
    """An input or an output of a predictor: arrays are copied into it or out of it."""

    def __init__(self, name: str, variable: Any, *, is_input: bool) -> None:
        self._name, self._is_input = name, is_input
        self._dtype = variable.dtype
        self._shape: Tuple[int, ...] = tuple(variable.shape)
        self.array: Optional[np.ndarray] = None

    def name(self) -> str:
        """The name of the variable."""
        return self._name

    def reshape(self, shape: Sequence[int]) -> None:
        """Say which shape the next array has."""
        self._shape = tuple(int(length) for length in shape)

    def copy_from_cpu(self, data: Any) -> None:
        """Take a copy of an array."""
        if not isinstance(data, np.ndarray):
            raise TypeError("In copy_from_cpu, we only support numpy ndarray and list[str] data type.")
        if not self._is_input:
            raise PreconditionNotMet(f"{self._name} is an output of the predictor; copy into its inputs")
        self.array, self._shape = data.copy(), tuple(data.shape)

    def share_external_data(self, data: Any) -> None:
        """Take the values of a tensor of Paddle's."""
        if not isinstance(data, (core.LoDTensor, paddle.Tensor)):
            raise TypeError("In share_external_data, we only support Tensor and LoDTensor.")
        self.copy_from_cpu(np.array(data))

    def copy_to_cpu(self) -> np.ndarray:
        """A copy of the array, once there is one."""
        if self.array is None:
            raise PreconditionNotMet(f"{self._name} holds nothing yet; run the predictor, or copy an array into it")
        return self.array.copy()

    def shape(self) -> List[int]:
        """The shape of the array, or before there is one of the variable."""
        return list(self._shape)

    def type(self) -> Any:
        """Paddle's name for the type of the elements."""
        name = self.array.dtype.name if self.array is not None else paddle.base.data_feeder.convert_dtype(self._dtype)
        return getattr(core.PaddleDType, str(name).upper())

    def lod(self) -> List[List[int]]:
        """The device has no sequences of unequal lengths."""
        return []

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Refuse sequences of unequal lengths."""
        if len(lod):
            raise Unimplemented(f"{self._name} was given levels of detail, which the IPU has not; pad the sequences")

    def fresh(self) -> Handle:
        """A handle of the same variable that holds nothing yet."""
        other = copy.copy(self)
        other.array = None
        return other

    def hold(self, array: np.ndarray) -> None:
        """Keep what a run made."""
        self.array, self._shape = array, tuple(array.shape)


class Predictor:
    """A saved inference model, compiled for the IPU with weights of its own."""

    def __init__(self, config: Any) -> None:
        self._scope = core.Scope()
        self._strategy = settings_of(config).strategy()
        with _static_mode():
            program, feeds, fetches = inference_model.load(config, self._scope)
            block = program.global_block()
            self._inputs = {name: Handle(name, block.var(name), is_input=True) for name in feeds}
            self._outputs = {name: Handle(name, block.var(name), is_input=False) for name in fetches}
            self._program = inference_model.compile(program, feeds, fetches, self._strategy, self._scope)

    def get_input_names(self) -> List[str]:
        """The names of the inputs, in the order of the model's."""
        return list(self._inputs)

    def get_output_names(self) -> List[str]:
        """The names of the outputs, in the order of the model's."""
        return list(self._outputs)

    def get_input_handle(self, name: str) -> Handle:
        """The input of that name."""
        return _found(self._inputs, name, "input")

    def get_output_handle(self, name: str) -> Handle:
        """The output of that name."""
        return _found(self._outputs, name, "output")

    def run(self, inputs: Any = None) -> Any:
        """Compute the outputs from the inputs; inputs that are given as tensors come back as tensors of outputs."""
        if inputs is not None:
            return self._run_on(inputs)
        feed = {}
        for name, handle in self._inputs.items():
            refusals.EMPTY_INPUT(name=name, array=handle.array)
            feed[name] = handle.array
        with _static_mode():
            arrays = paddle.static.Executor(paddle.CPUPlace()).run(
                self._program, feed=feed, fetch_list=list(self._outputs), scope=self._scope
            )
        for handle, array in zip(self._outputs.values(), arrays):
            handle.hold(np.asarray(array))
        return True

    def _run_on(self, inputs: Sequence[Any]) -> List[Any]:
        if len(inputs) != len(self._inputs):
            raise InvalidArgument(
                f"{len(inputs)} inputs were given to a predictor of {len(self._inputs)}: {', '.join(self._inputs)}"
            )
        for handle, value in zip(self._inputs.values(), inputs):
            handle.copy_from_cpu(np.array(value))
        self.run()
        return [paddle.to_tensor(handle.copy_to_cpu()) for handle in self._outputs.values()]

    def clone(self) -> Predictor:
        """Another predictor of the same program on the device, with handles of its own."""
        other = copy.copy(self)
        other._inputs = {name: handle.fresh() for name, handle in self._inputs.items()}
        other._outputs = {name: handle.fresh() for name, handle in self._outputs.items()}
        return other

    def clear_intermediate_tensor(self) -> None:
        """Nothing outlives a run on the host."""

    def try_shrink_memory(self) -> int:
        """Nothing outlives a run on the host: no bytes are freed."""
        return 0


def _found(handles: Dict[str, Handle], name: str, what: str) -> Handle:
    refusals.HANDLE(name=name, what=what, handles=handles)
    return handles[name]


def _static_mode() -> Any:
    """Inside it, ops are added to programs; a predictor may be used in dynamic mode as well."""
    return framework._dygraph_guard(None)


class PredictorPool:
    """Several predictors of one model; on the IPU they share the program that is on the device."""

    def __init__(self, config: Any, size: int) -> None:
        if size < 1:
            raise InvalidArgument(f"a pool of {size} predictors was asked for; give a number from 1")
        first = Predictor(config)
        self._predictors = [first, *(first.clone() for _ in range(size - 1))]

    def retrive(self, index: int) -> Predictor:
        """The predictor of that number; the name is Paddle's."""
        if not 0 <= index < len(self._predictors):
            raise InvalidArgument(f"predictor {index} was asked of a pool of {len(self._predictors)}")
        return self._predictors[index]
