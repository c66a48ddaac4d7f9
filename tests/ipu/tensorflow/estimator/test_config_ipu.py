"""IPURunConfig and RunConfig: what they hold, what they refuse, and what an estimator does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipu_conformance import check

from ..exact import START, samples
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

DEFAULTS = {"iterations_per_loop": 1, "ipu_options": None, "num_replicas": 1, "num_shards": 1, "ordinal": 0}


def test_a_run_configuration_has_defaults(ipu: Any) -> None:
    """One step in a loop, on one IPU, with no options, in a RunConfig without an IPURunConfig as well."""
    for config in (ipu.ipu_run_config.IPURunConfig(), ipu.ipu_run_config.RunConfig().ipu_run_config):
        found = {name: getattr(config, name) for name in DEFAULTS}
        check.equal(actual=found, expected=DEFAULTS, what="an IPURunConfig()")


def test_a_run_configuration_holds_what_it_is_given(estimators: Estimators) -> None:
    """Every argument is an attribute."""
    options = {"ipu_options": estimators.options(8), "num_replicas": 4, "num_shards": 2}
    given = {"iterations_per_loop": 3, "ordinal": 0, **options}
    config = estimators.ipu.ipu_run_config.IPURunConfig(**given)

    check.equal(actual={name: getattr(config, name) for name in given}, expected=given, what="the IPURunConfig")


def test_a_run_configuration_does_not_change(ipu: Any) -> None:
    """A run configuration is made once."""
    config = ipu.ipu_run_config.IPURunConfig()

    with check.raises(AttributeError, match="", what="the assignment to iterations_per_loop"):
        config.iterations_per_loop = 2


@pytest.mark.parametrize("name", ["iterations_per_loop", "num_replicas", "num_shards"])
@pytest.mark.parametrize("number", [0, -1])
def test_numbers_are_positive(ipu: Any, name: str, number: int) -> None:
    """There is at least one step, one replica and one shard."""
    with check.raises(ValueError, match=name, what=f"{name}={number}"):
        ipu.ipu_run_config.IPURunConfig(**{name: number})


@pytest.mark.parametrize(("replicas", "shards", "ipus"), [(1, 1, 1), (2, 1, 2), (1, 2, 2), (2, 2, 4), (4, 2, 8)])
def test_replicas_and_shards_fill_the_ipus(estimators: Estimators, replicas: int, shards: int, ipus: int) -> None:
    """Replicas times shards is the number of configured IPUs."""
    config = estimators.ipu.ipu_run_config.IPURunConfig(
        ipu_options=estimators.options(ipus), num_replicas=replicas, num_shards=shards
    )

    counts = config.num_replicas, config.num_shards
    check.equal(actual=counts, expected=(replicas, shards), what=f"the replicas and shards of {ipus} IPUs")


@pytest.mark.parametrize(("replicas", "shards", "ipus"), [(1, 1, 2), (2, 1, 1), (1, 2, 4), (2, 2, 2), (4, 1, 2)])
def test_ipus_that_are_too_many_or_too_few_are_refused(
    estimators: Estimators, replicas: int, shards: int, ipus: int
) -> None:
    """Any other number of configured IPUs is refused, and the numbers are named."""
    what = f"{replicas} replicas of {shards} shards on {ipus} IPUs"
    with check.raises(ValueError, match=rf"(?s){replicas * shards}.*{ipus}", what=what):
        estimators.ipu.ipu_run_config.IPURunConfig(
            ipu_options=estimators.options(ipus), num_replicas=replicas, num_shards=shards
        )


OPTIONS = [{"ipu_options": wrong} for wrong in ("ipu2", 2, {"auto_select_ipus": 2})]


@pytest.mark.parametrize("changes", [*OPTIONS, {"num_replicas": 2}, {"num_shards": 2}], ids=str)
def test_options_are_a_configuration(ipu: Any, changes: Dict[str, Any]) -> None:
    """Options are an IPUConfig; the vendor's ipu_run_config.py refuses several replicas or shards without them."""
    error = TypeError if "ipu_options" in changes else ValueError
    with check.raises(error, match="ipu_options", what=f"an IPURunConfig with {changes}"):
        ipu.ipu_run_config.IPURunConfig(**changes)


def test_the_stock_configuration_is_extended(tf: Any, ipu: Any, tmp_path: Path) -> None:
    """A RunConfig holds the IPU's part besides all that the stock one has."""
    ipu_part = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=4)
    stock = {"model_dir": str(tmp_path), "save_summary_steps": 3, "tf_random_seed": 5, "keep_checkpoint_max": 2}
    given = {"ipu_run_config": ipu_part, **stock}
    config = ipu.ipu_run_config.RunConfig(**given)

    check.instance(actual=config, expected=tf.estimator.RunConfig, what="the RunConfig")
    check.equal(actual={name: getattr(config, name) for name in given}, expected=given, what="the RunConfig")


def test_a_changed_copy_keeps_the_part_for_the_ipu(ipu: Any) -> None:
    """What ``replace`` does not name stays as it is."""
    ipu_part = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=4)
    changed = ipu.ipu_run_config.RunConfig(ipu_run_config=ipu_part).replace(save_summary_steps=3)

    check.instance(actual=changed, expected=ipu.ipu_run_config.RunConfig, what="the copy")
    numbers = changed.ipu_run_config.iterations_per_loop, changed.save_summary_steps
    check.equal(actual=numbers, expected=(4, 3), what="iterations_per_loop and save_summary_steps of the copy")


@pytest.mark.parametrize("place", ["argument", "configuration"])
def test_an_estimator_shows_its_configuration(estimators: Estimators, tmp_path: Path, place: str) -> None:
    """The configuration of an estimator and its folder can be read, which may be that of the configuration."""
    folder, in_argument = str(tmp_path / "model"), place == "argument"
    named: Dict[str, Any] = {"model_dir": folder}
    config = estimators.config(4, **({} if in_argument else named))
    settings = named if in_argument else {}
    estimator = estimators.ipu.ipu_estimator.IPUEstimator(model_fn=estimators.product(), config=config, **settings)

    shown = estimator.config.ipu_run_config.iterations_per_loop, estimator.model_dir, estimator.config.model_dir
    check.equal(actual=shown, expected=(4, folder, folder), what="the loop and the folder of the estimator")


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_ordinal_names_the_device(estimators: Estimators, ordinal: int) -> None:
    """The program is placed on the device of that number."""
    devices: List[str] = []

    def loss(features: Any) -> Any:
        value = estimators.loss(features)
        devices.append(value.op.device)
        return value

    run = {"ipu_options": estimators.options([1, 1]), "ordinal": ordinal}
    estimators.make(estimators.trains(loss), run=run).train(estimators.feed(2), steps=2)

    placed = devices and all(device.endswith(f"device:IPU:{ordinal}") for device in devices)
    check.holds(placed, f"With ordinal={ordinal} the program is placed on {devices}.")


def test_the_depth_of_prefetching_changes_no_result(estimators: Estimators) -> None:
    """How many elements wait for the device has no influence on what it computes."""
    deep = estimators.make(run={"prefetch_depth": 3}).evaluate(estimators.feed(4), steps=4)

    expected = {"loss": START[0] * samples(4).mean(), "global_step": 4}
    check.equal(actual=deep, expected=expected, what="the evaluation with a prefetch_depth of 3")


MODES = {"train": 12, "evaluate": 20, "predict": 28}
"""The batches of all four replicas, by mode."""


@pytest.mark.ipus(4)
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_size_is_shared_among_replicas(estimators: Estimators, mode: str) -> None:
    """Functions get the batch size of one replica for their mode as a parameter, beside those of the user."""
    seen: List[Any] = []

    def input_fn(params: Any) -> Any:
        seen.append((params["batch_size"], params["depth"]))
        data = estimators.tf.data.Dataset.from_tensor_slices(samples(64))
        return data.batch(params["batch_size"], drop_remainder=True).repeat()

    product = estimators.product(replicas=4)

    def model_fn(features: Any, mode: Any, params: Any) -> Any:
        seen.append((params["batch_size"], int(features.shape[0])))
        return product(features, mode)

    sizes = {"train_batch_size": 12, "eval_batch_size": 20, "predict_batch_size": 28}
    estimator = estimators.ipu.ipu_estimator.IPUEstimator(
        model_fn, estimators.folder(), estimators.config(replicas=4), {"depth": 3}, **sizes
    )
    estimators.call(estimator, mode, input_fn, 2)

    own = MODES[mode] // 4
    check.equal(actual=seen[0], expected=(own, 3), what="the parameters of the input function")
    check.equal(actual=set(seen[1:]), expected={(own, own)}, what="batch_size of the model function, and its batch")


def test_a_batch_size_divides_among_replicas(estimators: Estimators) -> None:
    """A batch of all replicas is a multiple of their number."""
    config = estimators.config(replicas=4)
    with check.raises(ValueError, match="replicas", what="a batch of 10 for 4 replicas"):
        estimators.ipu.ipu_estimator.IPUEstimator(
            estimators.product(replicas=4), estimators.folder(), config, train_batch_size=10
        )
