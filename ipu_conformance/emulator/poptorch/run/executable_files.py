"""Executable files: tensors and plain data in torch's zip format, read without running anything that a file names.

A file may name classes and functions, and each is looked up among the modules that the program has imported itself:
kinds of modules and optimizers, the options, and the functions of ``torch.nn.functional``. Torch's restricted reader
then builds the objects; a file that names anything else is refused before it is read.
"""

from __future__ import annotations

import collections
import io
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from ipu_conformance.atomic_write import replacing
from ipu_conformance.emulator.poptorch.compile import blocks
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.run import wrapping

FORMAT = "ipu-conformance poptorch executable 2"
FRONT_END = __name__.rpartition(".run.")[0]
PLAIN = {"builtins.dict": dict, "collections.defaultdict": collections.defaultdict}
KINDS = (torch.nn.Module, torch.optim.Optimizer)
FUNCTIONS = ("torch.nn.functional", "torch._C._nn")
MOST_BYTES = 2**31


def write(path: Path, contents: Dict[str, Any]) -> None:
    """The file appears whole or not at all, so that two processes may share a cache."""
    with replacing(path) as part, part.open("wb") as file:
        torch.save({"format": FORMAT, **contents}, file)


def read(filename: str) -> Dict[str, Any]:
    """What was written; whatever is wrong with a file is one Error."""
    try:
        if Path(filename).stat().st_size > MOST_BYTES:
            raise Error(f"{filename} is larger than an executable can be")
        data = Path(filename).read_bytes()
    except OSError as error:
        raise Error(f"{filename} cannot be read: {error.strerror}") from error
    try:
        names = get_unsafe_globals_in_checkpoint(io.BytesIO(data))
    except Exception as error:  # torch raises whatever its parser stumbles over
        raise Error(f"{filename} is not an executable of PopTorch") from error
    allowed: List[Any] = []
    for name in names:
        value = _looked_up(name)
        if value is None:
            raise Error(
                f"{filename} names {name}, which is no kind of module or optimizer that this program has imported: "
                "import it first, or wrap the model and use loadExecutable"
            )
        allowed.append((value, name))
    if any(value is blocks.restored for value, _ in allowed):
        kinds = [each for each in allowed if isinstance(each[0], type) and issubclass(each[0], torch.nn.Module)]
        allowed += [(blocks.begun_class(kind), f"{name} that begins a block") for kind, name in kinds]
    try:
        with safe_globals(allowed):
            contents = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # as above
        raise Error(f"{filename} is not an executable of PopTorch") from error
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        raise Error(f"{filename} is not an executable of this version of PopTorch: export it again")
    return contents


def _looked_up(name: str) -> Optional[Any]:
    """What a file may name, None if it may not."""
    if name in PLAIN:
        return PLAIN[name]
    for module, value in _imported(name):
        if value is wrapping.empty or value is blocks.restored or _is_function_of_numbers(module, value):
            return value
        if isinstance(value, type) and (module.startswith(FRONT_END + ".") or _is_kind(module, value)):
            return value
    return None


def _imported(name: str) -> Iterator[Any]:
    """The module and the value of a dotted name, wherever the module's part of it ends; nothing is imported."""
    words = name.split(".")
    for count in range(len(words) - 1, 0, -1):
        module = ".".join(words[:count])
        value: Any = sys.modules.get(module)
        for word in words[count:]:
            value = vars(value).get(word) if isinstance(value, (type, type(sys))) else None
        if value is not None:
            yield module, value


def _is_function_of_numbers(module: str, value: Any) -> bool:
    plain = module in FUNCTIONS and getattr(value, "__module__", module) in FUNCTIONS
    return plain and callable(value) and not isinstance(value, type) and not value.__name__.startswith("_")


def _is_kind(module: str, value: type) -> bool:
    """Whether a class is of modules or optimizers: torch's plain ones, or the user's own."""
    plain = module.startswith(("torch.nn.modules.", "torch.optim.")) or not module.startswith("torch.")
    return plain and issubclass(value, KINDS)
