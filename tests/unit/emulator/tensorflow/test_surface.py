"""Nothing but the vendor's names is reached under the vendor's packages."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any, List

import pytest

from ipu_conformance.emulator.hook import GRADIENTS

MODULES = {
    "tensorflow.python.ipu": "autoshard config data data.ops data.ops.dataset_ops dataset_benchmark dataset_extractor "
    "distributed distributed.host_collective_ops distributed.popdist_strategy eager eager.backprop "
    "gradient_accumulation horovod horovod.ipu_horovod_strategy "
    "horovod.popdist_strategy ipu_compiler ipu_estimator ipu_infeed_queue ipu_multi_worker_strategy ipu_outfeed_queue "
    "ipu_pipeline_estimator ipu_run_config ipu_session_run_hooks ipu_strategy keras loops ops ops.all_to_all_op "
    "ops.application_compile_op ops.control_flow_ops ops.cross_replica_ops ops.custom_ops ops.embedded_runtime "
    "ops.embedding_ops ops.experimental ops.experimental.popfloat_cast_to_gfloat ops.f8_ops ops.functional_ops "
    "ops.grad_util_ops ops.image_ops ops.internal_ops ops.math_ops ops.nn_ops ops.normalization_ops "
    "ops.pipelining_ops ops.rand_ops ops.reduce_scatter_op ops.replication_ops ops.rnn_ops ops.slicing_ops "
    "ops.statistics_ops ops.summary_ops ops.within_replica_ops optimizers optimizers.automatic_loss_scaling_optimizer "
    "optimizers.cross_replica_optimizer optimizers.gradient_accumulation_optimizer optimizers.ipu_optimizer "
    "optimizers.map_gradient_optimizer optimizers.sharded_optimizer scopes serving sharding utils "
    "vertex_edsl",
    "keras.ipu": "extensions extensions.extensions_base extensions.extensions_util extensions.functional_extensions "
    "extensions.model_extensions extensions.pipeline_stage_assignment extensions.register_extensions "
    "extensions.sequential_extensions layers layers.capture_upstream_gradients losses optimizers optimizers.adam "
    "optimizers.als_optimizer optimizers.automatic_loss_scaling_optimizer optimizers.cross_replica_optimizer "
    "optimizers.gradient_accumulation_optimizer optimizers.gradient_descent optimizers.map_gradient_optimizer "
    "optimizers.optimizer_v2_wrapper optimizers.parameter_unscaling_optimizer optimizers.rmsprop",
}
"""The modules that the vendor's packages have in one SDK or another, by package."""
NAMES = [f"{package}.{module}" for package, modules in MODULES.items() for module in modules.split()]
OURS = "ipu_conformance"


pytestmark = pytest.mark.usefixtures("tf")


def modules_of(package: str, seen: ModuleType) -> List[str]:
    """The names of all modules below a package, but those of Keras, which has a package of its own."""
    names = []
    for found in pkgutil.iter_modules(seen.__path__):
        name = f"{package}.{found.name}"
        names.append(name)
        if found.ispkg and name != "tensorflow.python.ipu.keras":
            names += modules_of(name, importlib.import_module(name))
    return names


@pytest.mark.parametrize("package", MODULES)
def test_every_module_is_the_vendors(package: str) -> None:
    """A walk through the package meets the vendor's modules, and no other."""
    walked = modules_of(package, importlib.import_module(package))

    assert sorted(walked) == [name for name in sorted(NAMES) if name.startswith(f"{package}.")]


def foreign(value: Any) -> bool:
    """Whether something that a module imports comes from Python, NumPy or TensorFlow, as in the vendor's modules."""
    if isinstance(value, ModuleType):
        return not value.__name__.startswith(OURS)
    return not str(getattr(value, "__module__", OURS)).startswith(OURS)


@pytest.mark.parametrize("name", [*MODULES, *NAMES])
def test_no_name_of_ours_is_in_a_module(name: str) -> None:
    """What a module holds beside the names that it publishes begins with an underscore, or is nobody's secret."""
    module = importlib.import_module(name)
    # A module that registers gradients is an attribute of its package from its import on.
    modules = [*NAMES, *(f"ops.{inner}_grad" for inner in GRADIENTS)]
    published = {*getattr(module, "__all__", ()), *(inner.rsplit(".", 1)[1] for inner in modules)}
    names = [
        each
        for each, value in vars(module).items()
        if not each.startswith("_") and each not in published and not foreign(value)
    ]

    assert names == []


@pytest.mark.parametrize(
    "line",
    [
        "from tensorflow.python.ipu import decisions",
        "from tensorflow.python.ipu import surface",
        "from tensorflow.python.ipu import run",
        "from tensorflow.python.ipu import HERE",
        "from tensorflow.python.ipu.config import decide",
        "from tensorflow.python.ipu.ops import loops",
        "from tensorflow.python.ipu.ops.nn_ops import decide",
        "from tensorflow.python.ipu.ipu_strategy import current",
        "from keras.ipu import options",
        "from keras.ipu.optimizers import ipu_wrapper",
    ],
)
def test_what_the_vendor_does_not_have_cannot_be_imported(line: str) -> None:
    """Names of the emulator are no names of the vendor's packages."""
    with pytest.raises(ImportError):
        exec(line, {})
