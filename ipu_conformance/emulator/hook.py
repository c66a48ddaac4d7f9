"""The import hook: the vendors' module names lead to the emulator's front ends.

A vendor's API that is a package of its own is an alias of ours; one that lives inside a framework is added to the
framework's modules as they are imported. The hook is installed only when the target is the emulator, and never over a
real SDK unless the emulator was named.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Dict, Mapping, Optional, Sequence, Tuple

from ipu_conformance.emulator.tensorflow import surface as tensorflow_surface
from ipu_conformance.emulator.tensorflow.legacy import stock as tensorflow_stock


@dataclass(frozen=True)
class FrontEnd:
    """How one framework's vendor API is reached."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    """Our package for each vendor name."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Where a module is that the vendor's version of the framework has elsewhere; one that is there comes first."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """For a module of the framework, our ``module:function`` that is called with it as soon as it is imported."""
    switches: Mapping[str, Tuple[str, str]] = field(default_factory=dict)
    """For an environment variable that the framework reads when it is imported: a module, and the value where that
    module is installed and the user has set none."""
    below: Tuple[int, ...] = ()
    """The first version that cannot be emulated, unless ``with_module`` is installed; none where all can."""
    with_module: str = ""
    because: str = ""
    """Why, and what to do."""

    def why_not(self, version: str) -> Optional[str]:
        """Why this version of the framework cannot be emulated, None if it can."""
        numbers = tuple(map(int, re.findall(r"\d+", version)[: len(self.below)]))
        if not self.below or len(numbers) < len(self.below) or numbers < self.below:
            return None
        if self.with_module and importlib.util.find_spec(self.with_module) is not None:
            return None
        return self.because


TENSORFLOW = "ipu_conformance.emulator.tensorflow.api"
TENSORFLOW_ACTIVATION = "ipu_conformance.emulator.tensorflow.activation"
GRADIENTS = (
    "all_to_all_op", "control_flow_ops", "cross_replica_ops", "embedding_ops", "experimental.popfloat_ops",
    "functional_ops", "grad_util_ops", "internal_ops", "nn_ops", "normalization_ops", "pipelining_ops", "rand_ops",
    "rnn_ops", "slicing_ops", "within_replica_ops",
)  # fmt: skip
"""The modules whose gradients the vendor registers by importing a module ``_grad`` beside them."""
ADDONS = "ipu_conformance.emulator.tensorflow.addons"
ADDON_MODULES = {
    "keras.layers": (
        "assume_equal_across_replicas", "ctc", "dense", "dropout", "effective_transformer", "embedding_lookup",
        "f8_convert", "normalization", "recomputation", "rnn",
    ),
    "keras.optimizers": ("adam_optimizer", "ipu_optimizer_base", "lamb_optimizer", "sgd_optimizer"),
    "layers": ("rnn_ops",),
    "v1.layers": ("rnn_ops",),
}  # fmt: skip
"""The vendor's files below each package of the add-ons; here the package has all of their names itself."""
KERAS = ("keras", "tf_keras")

FRONT_ENDS: Mapping[str, FrontEnd] = {
    "poptorch": FrontEnd(
        aliases={
            "poptorch": "ipu_conformance.emulator.poptorch.api",
            **{name: f"ipu_conformance.emulator.poptorch.beside.{name}" for name in ("popart", "popdist")},
        }
    ),
    "tensorflow": FrontEnd(
        aliases={
            **{
                f"tensorflow.python.ipu.{name}": f"{TENSORFLOW}.{where}"
                for name, where in tensorflow_surface.inner_modules().items()
            },
            **{
                f"tensorflow.python.ipu.ops.{name}_grad": "ipu_conformance.emulator.tensorflow.ops.gradients"
                for name in GRADIENTS
            },
            "tensorflow.python.ipu": TENSORFLOW,
            **{
                f"ipu_tensorflow_addons.{package}.{name}": f"{ADDONS}.{package}"
                for package, names in ADDON_MODULES.items()
                for name in names
            },
            "ipu_tensorflow_addons": ADDONS,
            "tensorflow.compiler.plugin": "ipu_conformance.emulator.tensorflow.legacy.plugin",
            "keras.optimizer_v2": "ipu_conformance.emulator.tensorflow.legacy.optimizer_v2",
            **{f"{name}.ipu": f"{TENSORFLOW}.keras" for name in (*KERAS, "tensorflow.keras")},
        },
        moved=tensorflow_stock.MODULES,
        changes={
            **dict.fromkeys(tensorflow_stock.NAMES, f"{tensorflow_stock.__name__}:change_names"),
            "tensorflow": f"{TENSORFLOW_ACTIVATION}:change_tensorflow",
            "tensorflow.python.eager.context": f"{TENSORFLOW_ACTIVATION}:change_context",
            "tensorflow.python.eager.polymorphic_function.polymorphic_function": (
                f"{TENSORFLOW_ACTIVATION}:change_functions"
            ),
            "tensorflow.python.compiler.xla.xla": f"{TENSORFLOW_ACTIVATION}:change_compilation",
            "tensorflow.python.autograph.pyct.error_utils": f"{TENSORFLOW_ACTIVATION}:change_errors",
            "tensorflow.python.ops.while_loop": f"{TENSORFLOW_ACTIVATION}:change_loops",
            "tensorflow.python.client.session": f"{TENSORFLOW_ACTIVATION}:change_session",
            "tensorflow.keras": f"{TENSORFLOW_ACTIVATION}:change_keras",
            **{
                module: f"{TENSORFLOW_ACTIVATION}:change_keras"
                for name in KERAS
                for module in (name, f"{name}.api._v1.keras", f"{name}.api._v2.keras")
            },
        },
        # From TensorFlow 2.16 on tf.keras is Keras 3, which has no IPU extensions, unless this asks for tf-keras.
        # Where a processor has certain instructions TensorFlow computes with oneDNN, whose softmax does not hand on
        # NaN, and whose bits depend on the number of threads; without it the device is the same on every machine.
        switches={"TF_USE_LEGACY_KERAS": ("tf_keras", "1"), "TF_ENABLE_ONEDNN_OPTS": ("tensorflow", "0")},
        below=(2, 16),
        with_module="tf_keras",
        because="its Keras is Keras 3, which has no IPU extensions; install tf-keras beside it",
    ),
    "paddle": FrontEnd(
        aliases={
            **{
                f"paddle.fluid.{name}": f"paddle.base.{name}"
                for name in ("core", "framework", "executor", "unique_name", "param_attr", "data_feeder", "backward")
            },
            "paddle.fluid": "ipu_conformance.emulator.paddle.legacy",
        },
        changes={
            "paddle.base.core": "ipu_conformance.emulator.paddle.activation:change_core",
            "paddle": "ipu_conformance.emulator.paddle.activation:change_paddle",
        },
        # From Paddle 3 on programs are of the new IR, which the IPU classes cannot read, unless this asks for the old.
        switches={"FLAGS_enable_pir_api": ("paddle", "0")},
        below=(3, 2),
        because="its functions take programs of the new IR alone, which no IPU class reads; install paddlepaddle<3.2",
    ),
}


class AliasFinder(importlib.abc.MetaPathFinder):
    """Finds a vendor's module, and what lies below it, in one of our packages; both names give the same object."""

    def __init__(self) -> None:
        self.aliases: Dict[str, str] = {}

    def real_name(self, fullname: str) -> Optional[str]:
        """The name in our package that ``fullname`` stands for, None for any other module."""
        for vendor, ours in self.aliases.items():
            if fullname == vendor or fullname.startswith(vendor + "."):
                return ours + fullname[len(vendor) :]
        return None

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec of an aliased module."""
        real = self.real_name(fullname)
        if real is None or not _is_there(real):
            return None
        return importlib.machinery.ModuleSpec(fullname, _AliasLoader(real), is_package=True)


def _is_there(module: str) -> bool:
    """Whether a module can be imported; not if the package around it is missing."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class MovedFinder(AliasFinder):
    """Finds a module under the name that it had, and what lies below it, unless there is a module of that name."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec of a module that has moved."""
        if fullname in self.aliases:
            stays = importlib.machinery.PathFinder.find_spec(fullname, path, target) is not None
        else:
            above = next((name for name in self.aliases if fullname.startswith(name + ".")), None)
            stays = above is None or getattr(sys.modules.get(above), "__name__", above) == above
        return None if stays else super().find_spec(fullname, path, target)


class _AliasLoader(importlib.abc.Loader):
    """Loads the real module and keeps its spec."""

    def __init__(self, real: str) -> None:
        self.real = real
        self.real_spec: Optional[importlib.machinery.ModuleSpec] = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.real_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just set the alias' spec; relative imports inside the module need the real one.
        module.__spec__ = self.real_spec


class ChangeFinder(importlib.abc.MetaPathFinder):
    """Finds a framework's module and calls our function on it once it has been executed."""

    def __init__(self) -> None:
        self.changes: Dict[str, str] = {}

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The module's spec, with a loader that calls our function at the end."""
        if fullname not in self.changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ChangingLoader(spec.loader, self.changes[fullname])
        return spec


class _ChangingLoader(importlib.abc.Loader):
    """Runs the module's loader, then our function."""

    def __init__(self, loader: importlib.abc.Loader, change: str) -> None:
        self.loader = loader
        self.change = change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # inspect and tracebacks read the source through the module's loader, so it must be the original one again.
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        _change(module, self.change)


def _change(module: ModuleType, change: str) -> None:
    where, _, function = change.partition(":")
    getattr(importlib.import_module(where), function)(module)


_FINDER = AliasFinder()
_MOVED_FINDER = MovedFinder()
_CHANGER = ChangeFinder()


def alias(names: Mapping[str, str]) -> None:
    """Make each vendor name lead to our module from now on."""
    _FINDER.aliases.update(names)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def move(names: Mapping[str, str]) -> None:
    """Make each name lead to another module from now on, unless there is a module of that name."""
    _MOVED_FINDER.aliases.update(names)
    if _MOVED_FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _MOVED_FINDER)


def change(functions: Mapping[str, str]) -> None:
    """Apply our ``module:function`` to each named module: now if it is imported, otherwise when it is."""
    for name, function in functions.items():
        if _CHANGER.changes.get(name) == function:
            continue
        _CHANGER.changes[name] = function
        if name in sys.modules:
            _change(sys.modules[name], function)
    if _CHANGER not in sys.meta_path:
        sys.meta_path.insert(0, _CHANGER)


def install(framework: str) -> None:
    """Make the vendor's API of ``framework`` importable under its own names; no framework is imported yet."""
    front_end = FRONT_ENDS[framework]
    for variable, (module, value) in front_end.switches.items():
        if importlib.util.find_spec(module) is not None:
            os.environ.setdefault(variable, value)
    alias(front_end.aliases)
    move(front_end.moved)
    change(front_end.changes)


def uninstall() -> None:
    """Drop every alias, pending change, and module that was imported through an alias.

    Changes that were made stay: a framework cannot be imported twice in one process.
    """
    for name in [name for name in sys.modules if _FINDER.real_name(name) is not None]:
        del sys.modules[name]
    for aliases in (_FINDER.aliases, _MOVED_FINDER.aliases):
        aliases.clear()
    _CHANGER.changes.clear()
    for finder in (_FINDER, _MOVED_FINDER, _CHANGER):
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
