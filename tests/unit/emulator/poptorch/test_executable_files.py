"""An executable file is data: reading one runs nothing that it names, and whatever is wrong with it is one Error."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.run import executable_files

MUTATIONS = 300


class Command:
    """Unpickling it plainly would run a command."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


class Net(torch.nn.Module):
    """A user's module with a function, a child and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        self.activation = torch.nn.functional.gelu
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))


def _written(path: Path, **contents: Any) -> str:
    executable_files.write(path, contents)
    return str(path)


def test_a_user_s_module_comes_back(tmp_path: Path) -> None:
    """Its class is looked up; parameters, buffers, functions and plain attributes are as they were."""
    net = Net()
    model = executable_files.read(_written(tmp_path / "a.popef", model=net))["model"]

    assert type(model) is Net
    assert model.activation is net.activation
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "function",
    [os.system, eval, torch.load, torch.hub.load, getattr, __import__],
    ids=lambda function: function.__name__,
)
def test_a_file_runs_no_command(function: Any, tmp_path: Path) -> None:
    """A file that names a function to call is refused, and the function is not called."""
    victim = tmp_path / "victim"
    path = _written(tmp_path / "a.popef", model=Command(function, f"touch {victim}"))

    with pytest.raises(Error, match=r"names .*, which is no kind of module"):
        executable_files.read(path)
    assert not victim.exists()


def test_a_class_that_is_not_imported_is_not_imported_for_a_file(tmp_path: Path) -> None:
    """Importing runs a module: the user does it, or nobody."""
    path = tmp_path / "a.popef"
    _written(path, model=Net())
    data = path.read_bytes()
    name = f"c{__name__}\n".encode()
    assert name in data
    path.write_bytes(data.replace(name, b"c" + b"x" * (len(name) - 2) + b"\n"))

    with pytest.raises(Error, match="xxx"):
        executable_files.read(str(path))


@pytest.mark.parametrize("content", [b"", b"PK", b"not an executable", None], ids=["empty", "zip", "text", "missing"])
def test_something_else_is_one_error(content: Any, tmp_path: Path) -> None:
    """A file that is missing or of another kind is refused."""
    path = tmp_path / "a.popef"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(Error, match=r"a\.popef"):
        executable_files.read(str(path))


def test_damaged_files_raise_nothing_else(tmp_path: Path) -> None:
    """Bytes that are changed, lost or doubled give the contents or one Error."""
    path = tmp_path / "a.popef"
    _written(path, model=Net(), arguments=[torch.ones(3)], digest="abc")
    original = path.read_bytes()
    chance = random.Random(7)
    refused = 0
    for _ in range(MUTATIONS):
        data = bytearray(original)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            kind = chance.randrange(3)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                del data[at : at + chance.randint(1, 40)]
            else:
                data[at:at] = data[at : at + chance.randint(1, 40)]
        path.write_bytes(bytes(data))
        try:
            executable_files.read(str(path))
        except Error:
            refused += 1

    assert refused > MUTATIONS // 2
