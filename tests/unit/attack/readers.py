"""Every reader and loader of the package, with good files of its kind and the errors that it declares."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Tuple, Type

import numpy as np

Read = Callable[[bytes], Any]


class Reader(NamedTuple):
    """A row: ``make`` is given a folder, and returns good files, what reads one, and the declared errors."""

    make: Callable[[Path], Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]]
    framework: str = ""


def _ir(format: str, *, text: bool = False) -> Reader:
    def make(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
        from ipu_conformance.ir import IRError, dumps, read
        from tests.unit.ir import hlo_files, networks, paddle_files, tf_files

        graphs = (networks.convnet(), networks.training())
        originals = {
            "paddle": lambda: [paddle_files.layer(ipu_index=1)],
            "tensorflow": lambda: (
                [tf_files.TEXT.encode()] if text else [tf_files.layer("/device:IPU:1"), tf_files.called(depth=2)]
            ),
            "hlo": lambda: [hlo_files.LAYER.encode(), hlo_files.SHORT.encode()],
        }.get(format, lambda: [dumps(graph, format) for graph in graphs])()
        return originals, lambda data: read(data, format if len(data) % 2 else None), (IRError,)

    return Reader(make)


def _data(kind: str) -> Reader:
    def make(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
        from ipu_conformance.data import DataError
        from tests.unit.data.test_hostile import GOOD, READ

        path = folder / "data_batch_1"

        def read(data: bytes) -> Any:
            path.write_bytes(data)
            return READ[kind](path)

        return [GOOD[kind]], read, (DataError,)

    return Reader(make)


def _wheel(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
    from ipu_conformance.data import DataError
    from ipu_conformance.data.package_index import MEMBER, read_wheel
    from tests.unit.data import files

    pickled = files.pickled_files(files.arrays((32, 32, 3)))["data_batch_1"]
    path = folder / "a.whl"

    def read(data: bytes) -> Any:
        path.write_bytes(files.npz({MEMBER: gzip.compress(data, 1)}))
        return read_wheel(path)

    return [pickled], read, (DataError,)


def _executable(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
    import torch

    from ipu_conformance.emulator.poptorch.options.diagnostics import Error
    from ipu_conformance.emulator.poptorch.run import executable_files

    path = folder / "a.popef"
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    executable_files.write(path, {"model": model, "arguments": [torch.ones(3)], "digest": "abc"})

    def read(data: bytes) -> Any:
        path.write_bytes(data)
        return executable_files.read(str(path))

    return [path.read_bytes()], read, (Error,)


def _options(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
    from ipu_conformance.emulator.poptorch.api import Options
    from ipu_conformance.emulator.poptorch.options.diagnostics import ConfigFileError

    path = folder / "options"

    def read(data: bytes) -> Any:
        path.write_bytes(data)
        return Options().loadFromFile(str(path))

    lines = (
        "deviceIterations(4)\nTraining.gradientAccumulation(8)\noutputMode(poptorch.OutputMode.All)\n"
        "TensorLocations.setActivationLocation(poptorch.TensorLocationSettings().useOnChipStorage(True))\n"
    )
    return [lines.encode()], read, (ConfigFileError,)


def _paddle_model(which: str) -> Reader:
    def make(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
        os.environ.setdefault("GLOG_minloglevel", "3")
        import paddle

        from ipu_conformance.emulator import hook

        hook.install("paddle")
        from ipu_conformance.emulator.paddle.compile import inference_model
        from ipu_conformance.emulator.paddle.errors import PaddleError

        static = paddle.static
        main, start = static.Program(), static.Program()
        with _static_mode(), static.program_guard(main, start):
            fed = static.data("x", [-1, 3])
            fetched = static.nn.fc(fed, 4, activation="tanh")
            executor = static.Executor(paddle.CPUPlace())
            executor.run(start)
            static.save_inference_model(str(folder / "model"), [fed], [fetched], executor, program=main)
        model, weights = folder / "model.pdmodel", folder / "model.pdiparams"
        changed = model if which == "program" else weights
        config = SimpleNamespace(
            model_from_memory=lambda: False, prog_file=lambda: str(model), params_file=lambda: str(weights)
        )

        def read(data: bytes) -> Any:
            changed.write_bytes(data)
            with _static_mode():
                return inference_model.load(config, static.Scope())

        return [changed.read_bytes()], read, (PaddleError,)

    return Reader(make, "paddle")


@contextmanager
def _static_mode() -> Iterator[None]:
    import paddle

    was_dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    try:
        yield
    finally:
        if was_dynamic:
            paddle.disable_static()


def _engine_options(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
    from ipu_conformance.emulator.tensorflow.config.environment import ENGINE_VARIABLE, engine_options
    from ipu_conformance.errors import ConformanceError

    good = json.dumps({"autoReport.all": "true", "autoReport.directory": "./reports", "debug.allowOutOfMemory": "true"})

    def read(data: bytes) -> Any:
        return engine_options({ENGINE_VARIABLE: data.decode("utf-8", "replace")})

    return [good.encode()], read, (ConformanceError,)


def _file(load: Callable[[], Tuple[Callable[[Path], Any], Path, Type[BaseException]]]) -> Reader:
    def make(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
        reader, good, error = load()
        path = folder / good.name

        def read(data: bytes) -> Any:
            path.write_bytes(data)
            return reader(path)

        return [good.read_bytes()], read, (error,)

    return Reader(make)


def _baseline() -> Tuple[Callable[[Path], Any], Path, Type[BaseException]]:
    from ipu_conformance.oracle.convergence import baseline

    def load(path: Path) -> Any:
        """The digest is made right, so that what is behind it is reached."""
        try:
            content = json.loads(path.read_text())
            path.write_text(json.dumps({**content, "digest": baseline.digest(content)}))
        except (ValueError, TypeError, AttributeError, RecursionError):
            pass
        return baseline.load(path)

    return load, sorted(baseline.SHIPPED.glob("*.json"))[0], baseline.BaselineError


def _tolerances(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
    from ipu_conformance.oracle.tolerance import cache

    stream, path = io.BytesIO(), folder / "a.npz"
    table = [{"place": ["w", 0], "rms": 1.0, "origin": "here"}]
    np.savez_compressed(stream, table=np.array(json.dumps(table)), allowed0=np.ones(3))

    def read(data: bytes) -> Any:
        path.write_bytes(hashlib.sha256(data).digest() + data)
        return cache._read_file(path)

    return [stream.getvalue()], read, ()


def _picture(folder: Path) -> Tuple[List[bytes], Read, Tuple[Type[BaseException], ...]]:
    from PIL import Image

    from ipu_conformance.workloads import WorkloadError
    from ipu_conformance.workloads.paddle_mnist.digits import read_picture

    pixels = np.arange(40 * 40, dtype=np.uint8).reshape(40, 40)
    originals = []
    for format in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "PPM", "EPS"):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, format)
        originals.append(stream.getvalue())
    path = folder / "digit.png"

    def read(data: bytes) -> Any:
        path.write_bytes(data)
        return read_picture(path)

    return originals, read, (WorkloadError,)


READERS: Mapping[str, Reader] = {
    **{f"ir-{name}": _ir(name) for name in ("json", "popart", "onnx", "paddle", "tensorflow", "hlo")},
    "ir-tensorflow-text": _ir("tensorflow", text=True),
    **{f"data-{name}": _data(name) for name in ("idx", "keras", "pickle", "tar", "jpeg")},
    "data-wheel": Reader(_wheel),
    "poptorch-executable": Reader(_executable, "torch"),
    "poptorch-options": Reader(_options, "torch"),
    "paddle-program": _paddle_model("program"),
    "paddle-weights": _paddle_model("weights"),
    "tensorflow-engine-options": Reader(_engine_options, "tensorflow"),
    "baseline": _file(_baseline),
    "tolerances": Reader(_tolerances),
    "picture": Reader(_picture),
}
