"""``paddle.inference`` on the IPU: predictors of a saved inference model."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle
from paddle.base import core, framework

from ipu_conformance.emulator.faults.decisions import paddle_host as decide
from ipu_conformance.emulator.paddle.api import custom_ops, inference_config
from ipu_conformance.emulator.paddle.api.inference_config import settings_of
from ipu_conformance.emulator.paddle.errors import InvalidArgument, NotFound, PreconditionNotMet, Unimplemented
from ipu_conformance.emulator.paddle.run import executor as runtime

PASSES = (
    "inference_process_pass",
    "forward_graph_extract_pass",
    "infer_shape_pass",
    "avg_shard_pass",
    "inference_dtype_transfer_pass",
    "delete_scale_op_pass",
    "popart_canonicalization_pass",
    "ipu_inplace_pass",
    "ipu_graph_builder_pass",
    "ipu_runtime_replacer_pass",
    "inference_postprocess_pass",
)
"""What is done to a loaded program, in this order."""


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
        self.array, self._shape = decide("copy inputs", data.copy(), given=data), tuple(data.shape)

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
            program, feeds, fetches = _load(config, self._scope)
            block = program.global_block()
            self._inputs = {name: Handle(name, block.var(name), is_input=True) for name in feeds}
            self._outputs = {name: Handle(name, block.var(name), is_input=False) for name in fetches}
            self._program = _compile(program, feeds, fetches, self._strategy, self._scope)

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
            if handle.array is None:
                raise PreconditionNotMet(f"input {name} holds nothing yet; copy an array into its handle first")
            feed[name] = handle.array
        with _static_mode():
            made = paddle.static.Executor(paddle.CPUPlace()).run(
                self._program, feed=feed, fetch_list=list(self._outputs), scope=self._scope
            )
        for handle, array in zip(self._outputs.values(), made):
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
    if name not in handles:
        raise NotFound(f"the model has no {what} {name!r}; it has {', '.join(handles) or 'none'}")
    return handles[name]


def _static_mode() -> Any:
    """Inside it, ops are added to programs; a predictor may be used in dynamic mode as well."""
    return framework._dygraph_guard(None)


def _load(config: Any, scope: Any) -> Tuple[Any, List[str], List[str]]:
    """The program of a saved model, whose weights go into the scope, and the names of its feeds and fetches."""
    if config.model_from_memory():
        raise Unimplemented("a model in memory was given for the IPU; save it, and give the two files")
    model, weights = _files(config)
    with paddle.static.scope_guard(scope):
        program = paddle.static.io.deserialize_program(model.read_bytes())
        executor = paddle.static.Executor(paddle.CPUPlace())
        if weights is not None:
            paddle.static.io.deserialize_persistables(program, weights.read_bytes(), executor)
    ops = program.global_block().ops
    feeds = {op.attr("col"): op.output("Out")[0] for op in ops if op.type == "feed"}
    fetches = {op.attr("col"): op.input("X")[0] for op in ops if op.type == "fetch"}
    return program, [feeds[place] for place in sorted(feeds)], [fetches[place] for place in sorted(fetches)]


def _files(config: Any) -> Tuple[Path, Optional[Path]]:
    """The file of the program and, where the model has weights, theirs."""
    if config.prog_file():
        model, weights = Path(config.prog_file()), Path(config.params_file())
    else:
        folder = Path(config.model_dir())
        models = sorted(folder.glob("*.pdmodel"))
        if len(models) != 1:
            raise NotFound(
                f"{folder} holds {len(models)} files *.pdmodel where one is expected; "
                f"give the model's two files to paddle.inference.Config"
            )
        model, weights = models[0], models[0].with_suffix(".pdiparams")
    if not model.is_file():
        raise NotFound(f"Cannot open file {model}, please confirm whether the file is normal.")
    return model, weights if weights.is_file() else None


def _compile(program: Any, feeds: List[str], fetches: List[str], strategy: Any, scope: Any) -> Any:
    """The program that runs the model on the device."""
    custom_ops.bind(program, strategy)
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if block.ops[index].type in ("feed", "fetch"):
            block._remove_op(index)
    program.desc.flush()
    backend = core.IpuBackend.get_instance()
    backend.set_scope(scope)
    backend.set_ipu_strategy(strategy)
    graph = core.Graph(program.desc)
    for name in decide("predictor's passes", PASSES):
        one = core.get_pass(name)
        one.set("feed_list", feeds)
        one.set("fetch_list", fetches)
        if strategy.custom_ops:
            one.set("custom_ops", {row.paddle_op for row in strategy.custom_ops})
        one.apply(graph)
    desc = core.ProgramDesc()
    convert = core.get_pass("graph_to_program_pass")
    convert.set_not_owned("program", desc)
    convert.apply(graph)
    compiled = framework.Program._construct_from_desc(desc)
    for name in feeds:
        compiled.global_block().var(name).desc.set_need_check_feed(False)
    compiled.org_program = program
    setattr(compiled, runtime.EXECUTABLE, backend.executable)
    return compiled


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


def install(package: Any) -> None:
    """Let ``paddle.inference`` of an IPU build stand in place of the stock one's refusals."""
    from paddle import inference

    stock, stock_pool = core.create_predictor, core.PredictorPool
    if getattr(stock, "__wrapped__", None) is not None:
        return

    @functools.wraps(stock)
    def create_predictor(config: Any) -> Any:
        enabled = decide("predictor on the IPU", settings_of(config).enabled)
        return Predictor(config) if enabled else stock(config)

    def create_pool(config: Any, size: int) -> Any:
        return (PredictorPool if settings_of(config).enabled else stock_pool)(config, size)

    for method in inference_config.METHODS:
        setattr(core.AnalysisConfig, method.__name__, method)
    core.AnalysisConfig.__init__ = inference_config.copying(core.AnalysisConfig.__init__)
    core.create_predictor = inference.create_predictor = create_predictor
    core.PredictorPool = inference.PredictorPool = create_pool
