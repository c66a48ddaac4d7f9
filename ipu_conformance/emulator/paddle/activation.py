"""Adds to the stock wheel's modules what an IPU build has; each function may be called again on the same module."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.paddle.api import first_strategy, places
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile import environment


def change_core(core: Any) -> None:
    """``paddle.base.core`` answers as in an IPU build; Paddle itself is not complete yet."""
    if getattr(core, "IpuStrategy", None) is IpuStrategy:
        return
    core.is_compiled_with_ipu = lambda: places.is_compiled_with_ipu()
    core.get_ipu_device_count = lambda: environment.device_count()
    core.IPUPlace = places.ipu_place(core)
    core.IpuStrategy = IpuStrategy
    stock = core.get_pass

    @functools.wraps(stock)
    def get_pass(name: str) -> Any:
        from ipu_conformance.emulator.paddle.compile import passes

        return passes.get(name) if name in passes.PASSES else stock(name)

    core.get_pass = get_pass


def change_paddle(paddle: Any) -> None:
    """The finished ``paddle`` package compiles programs for the emulator and runs them on it."""
    from ipu_conformance.emulator.paddle.api.backend import IpuBackend

    core = paddle.base.core
    if getattr(core, "IpuBackend", None) is not IpuBackend:
        core.IpuBackend = IpuBackend
        _change_places(paddle, core)
        _change_programs(paddle.base)
        _change_layers()
        _change_predictors(paddle.inference, core)
        _change_extensions()
        paddle.__getattr__ = _legacy
    faults.wake("paddle")


def _legacy(name: str) -> Any:
    """``paddle.fluid`` was there without an import of its own."""
    if name == "fluid":
        return importlib.import_module("paddle.fluid")
    raise AttributeError(f"module 'paddle' has no attribute {name!r}")


def _change_places(paddle: Any, core: Any) -> None:
    """Every module that holds the stock ``IPUPlace`` holds ours, and ``get_device`` knows it."""
    for module in (paddle, paddle.base, paddle.framework):
        if module.IPUPlace is core.libpaddle.IPUPlace:
            module.IPUPlace = core.IPUPlace
    paddle.device.get_device = paddle.get_device = places.with_ipus(paddle.device, core)


def _change_programs(base: Any) -> None:
    """``IpuCompiledProgram.compile`` prepares what it compiles, and ``Executor.run`` runs it on the device."""
    from ipu_conformance.emulator.paddle.compile import custom_ops, passes, precision, sessions
    from ipu_conformance.emulator.paddle.compile.passes.popart import EXECUTABLE
    from ipu_conformance.emulator.paddle.run import executor
    from ipu_conformance.emulator.paddle.run.device import DEVICE

    compiled_program = base.compiler.IpuCompiledProgram
    stock_compile, stock_run = compiled_program.compile, base.executor.Executor._run_impl

    @functools.wraps(stock_compile)
    def compile(self: Any, feed_list: Any, fetch_list: Any) -> Any:
        custom_ops.bind(self._program, self._ipu_strategy._ipu_strategy)
        precision.follow_the_scope(self._program, self._scope)
        with passes.at_once():
            program = stock_compile(self, sessions.names_of(feed_list), sessions.names_of(fetch_list))
        setattr(program, EXECUTABLE, DEVICE.executable)
        return program

    @functools.wraps(stock_run)
    def _run_impl(self: Any, program: Any = None, **arguments: Any) -> Any:
        if executor.is_compiled(program):
            results = executor.run(self, program, **arguments)
        else:
            results = stock_run(self, program=program, **arguments)
        executor.count(program)
        return results

    compiled_program.compile, base.executor.Executor._run_impl = compile, _run_impl
    base.compiler.IpuStrategy.__getattr__ = first_strategy.old_name


def _change_layers() -> None:
    """``paddle.jit`` makes one program of a model for the device, and runs it there."""
    from paddle.jit.dy2static import function_spec, partial_program, program_translator

    from ipu_conformance.emulator.paddle.run import dynamic

    symbolic, layer = program_translator.SymbolicStaticFunction, partial_program.PartialProgramLayer
    symbolic._perform_call = dynamic.as_one_program(symbolic._perform_call)
    layer.__call__ = dynamic.on_the_device(layer.__call__)
    spec = function_spec.FunctionSpec
    spec.args_to_input_spec = dynamic.with_shapes_as_asked(spec.args_to_input_spec)


def _change_predictors(inference: Any, core: Any) -> None:
    """``paddle.inference`` accepts the settings of the IPU, and makes predictors for it."""
    from ipu_conformance.emulator.paddle.api import inference_config
    from ipu_conformance.emulator.paddle.api.inference import Predictor, PredictorPool

    config = core.AnalysisConfig
    stock_predictor, stock_pool = core.create_predictor, core.PredictorPool

    @functools.wraps(stock_predictor)
    def create_predictor(config: Any) -> Any:
        return (Predictor if inference_config.settings_of(config).enabled else stock_predictor)(config)

    def create_pool(config: Any, size: int) -> Any:
        return (PredictorPool if inference_config.settings_of(config).enabled else stock_pool)(config, size)

    for method in inference_config.METHODS:
        setattr(config, method.__name__, method)
    config.__init__ = inference_config.copying(config.__init__)
    core.create_predictor = inference.create_predictor = create_predictor
    core.PredictorPool = inference.PredictorPool = create_pool


def _change_extensions() -> None:
    """``cpp_extension.load`` refuses C++ ops that are written against PopART."""
    from paddle.utils import cpp_extension

    from ipu_conformance.emulator.paddle.api import custom_ops

    cpp_extension.load = custom_ops.refuse_sources(cpp_extension.load)
