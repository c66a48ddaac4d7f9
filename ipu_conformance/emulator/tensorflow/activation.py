"""Adds to stock TensorFlow and Keras what an IPU build has; each function may be called again on the same module."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from types import ModuleType
from typing import Any, Callable, List, Optional, Sequence, Tuple

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.tensorflow.compile import graph_building
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.run import half, replica_calls, sums
from ipu_conformance.errors import ConformanceError

DONE = "_ipu_conformance_changed"
LARGEST_UNTOUCHED = 2**31 - 1
"""Nodes of a graph that the host runs as it was built, unless the program asks otherwise: any number.

Optimizing a graph of a few nodes takes longer than running it, and a training step of a convolutional net, with about
a thousand nodes, runs as fast either way. A limit between small and large would show in the last bits: the same net,
cut into stages, is another number of graphs. The device compiles with passes of its own.
"""


def change_tensorflow(tensorflow: ModuleType) -> None:
    """Compute float16 and add up as the device does, and switch on the faults that the environment names.

    The whole of ``tensorflow`` is imported by then: it refers to operations by their identity while it is imported.
    """
    _widen_half()
    _spare_work()
    _replace(importlib.import_module("tensorflow.python.ops.gen_math_ops"), "add_n", sums.ordered)
    faults.wake("tensorflow")


def change_keras(keras: ModuleType) -> None:
    """Make ``keras.ipu`` lead to the emulated module, which is imported on first use."""
    own = getattr(keras, "__getattr__", None)
    if getattr(own, DONE, False):
        return

    def find(name: str) -> Any:
        if name == "ipu":
            return importlib.import_module("ipu_conformance.emulator.tensorflow.api.keras")
        if own is not None:
            return own(name)
        raise AttributeError(f"module {keras.__name__!r} has no attribute {name!r}")

    setattr(find, DONE, True)
    keras.__getattr__ = find  # type: ignore[method-assign]


def change_session(session: ModuleType) -> None:
    """Sessions of graph mode place what belongs to an IPU on the host, and list the configured IPUs."""
    base = session.BaseSession
    _replace(base, "__init__", _placing_softly)
    _replace(base, "list_devices", _listing_session_devices)
    _replace(base, "_extend_graph", _following)


def change_context(context: ModuleType) -> None:
    """The devices of the process include the configured IPUs, and run what is placed on them."""
    for method in ("list_physical_devices", "list_logical_devices", "get_visible_devices"):
        _replace(context.Context, method, _listing_devices)
    placement = context.Context.soft_device_placement
    if not getattr(placement.fset, DONE, False):
        context.Context.soft_device_placement = property(_asked_placement(placement.fget), _placed(placement.fset))
        context.Context.config = property(_soft_by_default(context.Context.config.fget))


def change_functions(functions: ModuleType) -> None:
    """Every ``tf.function`` runs on the stock kernels, and replicas meet inside of one that they call.

    What asks for XLA is meant for the IPU, and XLA on the host does not know data set iterators.
    """
    function = functions.Function
    _replace(function, "__call__", replica_calls.inlining)
    _replace(function, "experimental_get_compiler_ir", _revealing_compilation)
    if DONE not in function.__dict__:
        function._jit_compile = property(_compilation, _ask_for_compilation)
        setattr(function, DONE, True)


def change_compilation(xla: ModuleType) -> None:
    """What ``xla.compile`` compiles in the scope of an IPU runs there, as what ``ipu_compiler.compile`` does."""
    _replace(xla, "compile", _compiling_for_ipus)


def change_errors(errors: ModuleType) -> None:
    """Our exceptions keep their types when they pass a converted function; stock only keeps Python's own."""
    _replace(errors.ErrorMetadataBase, "create_exception", _keeping_types)


def change_loops(loops: ModuleType) -> None:
    """Replicas meet inside the loops that they run.

    Where TensorFlow was imported before, the modules of its interface have the loop of then.
    """
    stock = loops.while_loop
    _replace(loops, "while_loop", replica_calls.sharing)
    _rebind([(stock, loops.while_loop)])


def _widen_half() -> None:
    """Programs compute in float32 what the host would compute otherwise than the device in float16."""
    replaced = []
    for module, name, partials in half.OPERATIONS:
        owner = importlib.import_module(module)
        stock = getattr(owner, name)
        _replace(owner, name, functools.partial(half.widening, partials=partials))
        replaced.append((stock, getattr(owner, name)))
    _rebind(replaced)


def _spare_work() -> None:
    """Graphs are built with less bookkeeping."""
    for module, path, make in graph_building.FUNCTIONS:
        *outer, name = path.split(".")
        owner = functools.reduce(getattr, outer, importlib.import_module(module))
        if hasattr(owner, name):
            _replace(owner, name, make)
    for module, name in graph_building.MEMBERS:
        protocol = getattr(importlib.import_module(module), name, None)
        if protocol is not None:
            graph_building.check_quickly(protocol)


def _rebind(replaced: Sequence[Tuple[Any, Any]]) -> None:
    """Put the new functions in place of the stock ones in TensorFlow's modules, whatever those call them."""
    instead = {id(stock): changed for stock, changed in replaced if stock is not changed}
    for module in [module for name, module in list(sys.modules.items()) if name.startswith("tensorflow")]:
        for name in [name for name, value in vars(module).items() if id(value) in instead]:
            setattr(module, name, instead[id(vars(module)[name])])


def _replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    own = getattr(owner, name)
    if not getattr(own, DONE, False):
        changed = make(own)
        setattr(changed, DONE, True)
        setattr(owner, name, changed)


class _ThreadState(threading.local):
    """Whether this thread asks what a function compiles to, which XLA answers."""

    revealing = False


_thread_state = _ThreadState()


def _compilation(function: Any) -> Optional[bool]:
    return function.__dict__.get("_jit_compile") if _thread_state.revealing else None


def _ask_for_compilation(function: Any, asked: Optional[bool]) -> None:
    function.__dict__["_jit_compile"] = asked


def _revealing_compilation(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def reveal(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.get_concrete_function(*args, **kwargs)  # built as it is executed, before XLA comes in
        _thread_state.revealing = True
        try:
            return own(self, *args, **kwargs)
        finally:
            _thread_state.revealing = False

    return reveal


def _compiling_for_ipus(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def compiled(computation: Any, inputs: Any = None) -> Any:
        compiler = importlib.import_module("ipu_conformance.emulator.tensorflow.compile.compiler")
        return (compiler.compile if compiler.in_scope() else own)(computation, inputs)

    return compiled


def _keeping_types(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def create(self: Any, source_error: BaseException) -> Any:
        if not isinstance(source_error, ConformanceError):
            return own(self, source_error)
        kind = type(source_error)
        error = kind.__new__(kind)
        error.__dict__.update(source_error.__dict__)
        error.args = (self.get_message(),)
        return error.with_traceback(source_error.__traceback__)

    return create


def _placed(own: Callable[..., None]) -> Callable[..., None]:
    """The runtime always places softly: there is an IPU for a program, but none for stock TensorFlow."""

    def change(self: Any, enable: bool) -> None:
        self._ipu_asked_placement = enable
        own(self, True)

    setattr(change, DONE, True)
    return change


def _soft_by_default(own: Callable[..., Any]) -> Callable[..., Any]:
    """The runtime's configuration; stock places softly only if the runtime starts in eager mode.

    Small graphs run as they were built.
    """

    def config(self: Any) -> Any:
        settings = own(self)
        if self._soft_device_placement is None:
            settings.allow_soft_placement = True
        _leave_graphs(settings)
        return settings

    return config


def _asked_placement(own: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self: self._ipu_asked_placement if hasattr(self, "_ipu_asked_placement") else own(self)


def _placing_softly(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        asked = (
            importlib.import_module("tensorflow.python.eager.context").context().config if config is None else config
        )
        if hasattr(asked, "allow_soft_placement"):  # anything else is refused by the session itself
            config = _softly(asked)
            _leave_graphs(config)
        own(self, target, graph, config)

    return init


def _following(own: Callable[..., None]) -> Callable[..., None]:
    """A session takes up what a graph has got since it ran last: programs follow the configuration before that."""

    @functools.wraps(own)
    def extend(self: Any) -> None:
        waiting = getattr(self._graph, "_ipu_waiting", None)
        if waiting is not None:
            waiting.follow(self)
        own(self)

    return extend


def _softly(settings: Any) -> Any:
    """A copy of a session's settings with soft placement."""
    copied = type(settings)()
    copied.CopyFrom(settings)
    copied.allow_soft_placement = True
    return copied


def _leave_graphs(settings: Any) -> None:
    """Have the host run graphs as they were built; a number that the program has set stays."""
    passes = settings.graph_options.rewrite_options
    passes.min_graph_nodes = passes.min_graph_nodes or LARGEST_UNTOUCHED


def _listing_devices(own: Callable[..., Any]) -> Callable[..., Any]:
    physical = own.__name__ != "list_logical_devices"

    @functools.wraps(own)
    def listed(self: Any, device_type: Optional[str] = None) -> List[Any]:
        ipus = system.physical_devices() if physical else system.logical_devices()
        return [*own(self, device_type), *(ipus if device_type in (None, system.DEVICE_TYPE) else ())]

    return listed


def _listing_session_devices(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def listed(self: Any) -> List[Any]:
        return [*own(self), *system.session_devices()]

    return listed
