"""Stock TensorFlow is changed whenever the emulator is asked for; before its import: ``emulate/test_tensorflow.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ipu_conformance.emulator.tensorflow import activation

PROGRAM = """
from tensorflow.python import ipu
import tensorflow as tf

config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()
elements = iter(tf.data.Dataset.range(10))

@tf.function(jit_compile=True)
def total(iterator):
    result = tf.constant(0, tf.int64)
    for _ in tf.range(3):
        result += next(iterator)
    return result

@tf.function
def doubled():
    add = ipu.cross_replica_ops.cross_replica_sum
    return tf.compat.v1.while_loop(lambda value: value < 50.0, add, [tf.constant(1.0)])

print("LOOP", float(strategy.run(doubled)))
print("TOTAL", int(strategy.run(total, args=(elements,))), tf.keras.ipu.__name__)
print("DEVICES", [device.name for device in tf.config.list_physical_devices("IPU")])
"""
SAID = ["LOOP 64.0", "TOTAL 6 ipu_conformance.emulator.tensorflow.api.keras", "DEVICES ['/physical_device:IPU:0']"]


GRAPH_FIRST = """
import tensorflow as tf
from tensorflow.python import ipu

with tf.Graph().as_default():
    tf.config.list_logical_devices()
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with tf.device("/device:IPU:0"):
    print("PRODUCT", float(tf.constant(2.0) * 3.0))
"""


def said(*command: str) -> Any:
    """The lines that a process prints, without what TensorFlow says."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    made = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.splitlines()


def test_tensorflow_may_be_imported_before(tmp_path: Path) -> None:
    """A process that has imported TensorFlow and Keras can still be emulated."""
    late = "import keras, tensorflow; from ipu_conformance.emulator import hook; hook.install('tensorflow')\n"
    script = tmp_path / "program.py"
    script.write_text(late + PROGRAM)

    assert said(str(script)) == SAID


def test_changing_twice_changes_once() -> None:
    """Every change may be made again on the same module."""

    class Base:
        def method(self) -> str:
            return "own"

    owner = ModuleType("owner")
    owner.Base = Base  # type: ignore[attr-defined]
    for _ in range(2):
        activation._replace(Base, "method", lambda own: lambda self: own(self) + " changed")

    assert Base().method() == "own changed"


def test_keras_keeps_its_own_lookup() -> None:
    """A module that finds names by a function of its own keeps it, and unknown names stay unknown."""
    module = ModuleType("some_keras")
    module.__getattr__ = lambda name: f"own {name}"  # type: ignore[method-assign]
    bare = ModuleType("bare_keras")
    for changed in (module, module, bare):
        activation.change_keras(changed)

    assert module.anything == "own anything"
    with pytest.raises(AttributeError, match=r"bare_keras.*anything"):
        _ = bare.anything
