"""The vendor's modules: every way of importing them gives the same objects."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

MODULES = ("config", "ipu_strategy", "utils", "serving")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_an_attribute_and_can_be_imported(ipu: Any, name: str) -> None:
    """A module is the same as an attribute of the package and as an import of its own."""
    assert importlib.import_module(f"tensorflow.python.ipu.{name}") is getattr(ipu, name)


def test_the_package_is_an_attribute_of_tensorflow(ipu: Any) -> None:
    """``from tensorflow.python import ipu`` gives the package."""
    python = importlib.import_module("tensorflow.python")

    assert python.ipu is ipu


def test_what_does_not_exist_cannot_be_imported(ipu: Any) -> None:
    """An unknown name of the package is an AttributeError, and an unknown module a ModuleNotFoundError."""
    with pytest.raises(AttributeError, match="no_such_module"):
        _ = ipu.no_such_module
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("tensorflow.python.ipu.no_such_module")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            "config",
            "IPUConfig DeviceConnectionType MergeRemoteBuffersBehaviour SchedulingAlgorithm SelectionOrder "
            "StochasticRoundingBehaviour AttributeMetadata",
        ),
        ("ipu_strategy", "IPUStrategy IPUStrategyV1"),
        (
            "utils",
            "configure_ipu_system get_ipu_config get_num_of_ipus_in_device move_variable_initialization_to_cpu "
            "reset_ipu_configuration reset_ipu_seed running_on_ipu_model use_synthetic_data_for "
            "export_dataset_to_file export_inputs_to_file DeviceConnectionType SelectionOrder",
        ),
        ("serving", "export_single_step export_pipeline export_keras"),
        ("embedded_runtime", "embedded_runtime_start embedded_runtime_call"),
        ("application_compile_op", "experimental_application_compile_op"),
    ],
)
def test_a_module_has_its_names(ipu: Any, module: str, names: str) -> None:
    """Every documented name of a module exists, and is found by dir."""
    found = getattr(ipu, module)

    assert [name for name in names.split() if not hasattr(found, name) or name not in dir(found)] == []


@pytest.mark.parametrize("name", MODULES)
def test_the_package_lists_its_modules(ipu: Any, name: str) -> None:
    """The package's modules are found by dir before they are imported."""
    assert name in dir(ipu)


@pytest.mark.parametrize("keras", ["keras", "tensorflow.keras"])
def test_keras_has_a_module_of_its_own(tf: Any, ipu: Any, keras: str) -> None:
    """``keras.ipu`` is the same under every name of Keras, as an attribute and as an import."""
    module = importlib.import_module(keras)

    assert module.ipu is tf.keras.ipu
    assert importlib.import_module(f"{keras}.ipu") is tf.keras.ipu


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("serving", "export_single_step"),
        ("serving", "export_pipeline"),
        ("serving", "export_keras"),
        ("utils", "export_dataset_to_file"),
        ("utils", "export_inputs_to_file"),
        ("embedded_runtime", "embedded_runtime_start"),
        ("embedded_runtime", "embedded_runtime_call"),
        ("embedded_runtime", "RuntimeContext"),
        ("application_compile_op", "experimental_application_compile_op"),
    ],
)
def test_what_needs_the_compiler_is_refused(ipu: Any, module: str, name: str) -> None:
    """What only the vendor's compiler or runtime can do is refused by name, whatever it is called with."""
    with pytest.raises(NotImplementedError, match=f"{name} is not available"):
        getattr(getattr(ipu, module), name)("anything", some="thing")
