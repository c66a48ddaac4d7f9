"""IPURunConfig and RunConfig: what they hold, what they refuse, and what an estimator does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest

from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

DEFAULTS = {"iterations_per_loop": 1, "ipu_options": None, "num_replicas": 1, "num_shards": 1, "ordinal": 0}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_run_configuration_has_defaults(ipu: Any, name: str) -> None:
    """One step in a loop, on one IPU, with no options."""
    assert getattr(ipu.ipu_run_config.IPURunConfig(), name) == DEFAULTS[name]


def test_a_run_configuration_holds_what_it_is_given(estimators: Estimators) -> None:
    """Every argument is an attribute."""
    options = estimators.options(4)
    config = estimators.ipu.ipu_run_config.IPURunConfig(
        iterations_per_loop=8, ipu_options=options, num_replicas=2, num_shards=2, ordinal=0
    )

    assert (config.iterations_per_loop, config.num_replicas, config.num_shards, config.ordinal) == (8, 2, 2, 0)
    assert config.ipu_options is options


def test_a_run_configuration_does_not_change(ipu: Any) -> None:
    """A run configuration is made once."""
    config = ipu.ipu_run_config.IPURunConfig()

    with pytest.raises(AttributeError):
        config.iterations_per_loop = 2


@pytest.mark.parametrize("name", ["iterations_per_loop", "num_replicas", "num_shards"])
@pytest.mark.parametrize("number", [0, -1])
def test_numbers_are_positive(ipu: Any, name: str, number: int) -> None:
    """There is at least one step, one replica and one shard."""
    with pytest.raises(ValueError, match=name):
        ipu.ipu_run_config.IPURunConfig(**{name: number})


@pytest.mark.parametrize(("replicas", "shards", "ipus"), [(1, 1, 1), (2, 1, 2), (1, 2, 2), (2, 2, 4), (4, 2, 8)])
def test_replicas_and_shards_fill_the_ipus(estimators: Estimators, replicas: int, shards: int, ipus: int) -> None:
    """Replicas times shards is the number of configured IPUs."""
    config = estimators.ipu.ipu_run_config.IPURunConfig(
        ipu_options=estimators.options(ipus), num_replicas=replicas, num_shards=shards
    )

    assert config.num_replicas * config.num_shards == ipus


@pytest.mark.parametrize(("replicas", "shards", "ipus"), [(1, 1, 2), (2, 1, 1), (1, 2, 4), (2, 2, 2), (4, 1, 2)])
def test_ipus_that_are_too_many_or_too_few_are_refused(
    estimators: Estimators, replicas: int, shards: int, ipus: int
) -> None:
    """Any other number of configured IPUs is refused, and the numbers are named."""
    with pytest.raises(ValueError, match=rf"(?s){replicas * shards}.*{ipus}"):
        estimators.ipu.ipu_run_config.IPURunConfig(
            ipu_options=estimators.options(ipus), num_replicas=replicas, num_shards=shards
        )


@pytest.mark.parametrize("changes", [{"num_replicas": 2}, {"num_shards": 2}], ids=str)
def test_several_ipus_need_options(estimators: Estimators, changes: Dict[str, int]) -> None:
    """Without options there is one IPU, so that two replicas or shards are refused, at the latest when they run."""

    def run() -> None:
        chosen = estimators.ipu.ipu_run_config.IPURunConfig(**changes)
        config = estimators.ipu.ipu_run_config.RunConfig(ipu_run_config=chosen)
        estimators.make(config=config).evaluate(estimators.feed(2), steps=1)

    with pytest.raises(ValueError, match=r"num_replicas|num_shards|ipu_options"):
        run()


def test_the_stock_configuration_is_extended(tf: Any, ipu: Any, tmp_path: Path) -> None:
    """A RunConfig holds the IPU's part besides all that the stock one has."""
    ipu_part = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=4)
    config = ipu.ipu_run_config.RunConfig(
        ipu_run_config=ipu_part, model_dir=str(tmp_path), save_summary_steps=3, tf_random_seed=5, keep_checkpoint_max=2
    )

    assert isinstance(config, tf.estimator.RunConfig)
    assert config.ipu_run_config == ipu_part
    assert (config.model_dir, config.save_summary_steps) == (str(tmp_path), 3)
    assert (config.tf_random_seed, config.keep_checkpoint_max) == (5, 2)


def test_the_part_for_the_ipu_has_a_default(ipu: Any) -> None:
    """Without an IPURunConfig the default one counts."""
    assert ipu.ipu_run_config.RunConfig().ipu_run_config.iterations_per_loop == 1


def test_a_changed_copy_keeps_the_part_for_the_ipu(ipu: Any) -> None:
    """What ``replace`` does not name stays as it is."""
    ipu_part = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=4)
    changed = ipu.ipu_run_config.RunConfig(ipu_run_config=ipu_part).replace(save_summary_steps=3)

    assert isinstance(changed, ipu.ipu_run_config.RunConfig)
    assert (changed.ipu_run_config.iterations_per_loop, changed.save_summary_steps) == (4, 3)


def test_an_estimator_shows_its_configuration(estimators: Estimators, tmp_path: Path) -> None:
    """The configuration of an estimator, its folder and its parameters can be read."""
    estimator = estimators.make(loop=4, folder=tmp_path / "model", params=None)

    assert estimator.config.ipu_run_config.iterations_per_loop == 4
    assert estimator.model_dir == estimator.config.model_dir == str(tmp_path / "model")


def test_the_folder_may_come_from_the_configuration(estimators: Estimators, tmp_path: Path) -> None:
    """Without model_dir the folder is that of the configuration."""
    config = estimators.config(model_dir=str(tmp_path / "model"))
    estimator = estimators.ipu.ipu_estimator.IPUEstimator(model_fn=estimators.product(), config=config)

    assert estimator.model_dir == str(tmp_path / "model")


@pytest.mark.parametrize("ordinal", [0, 1])
def test_the_ordinal_names_the_device(estimators: Estimators, ordinal: int) -> None:
    """The program is placed on the device of that number."""
    devices: List[str] = []

    def loss(features: Any) -> Any:
        value = estimators.tf.reduce_sum(estimators.weight() * features)
        devices.append(value.op.device)
        return value

    run = {"ipu_options": estimators.options([1, 1]), "ordinal": ordinal}
    estimators.make(estimators.trains(loss), run=run).train(estimators.feed(2), steps=2)

    assert devices
    assert all(device.endswith(f"device:IPU:{ordinal}") for device in devices)


def test_the_depth_of_prefetching_changes_no_result(estimators: Estimators) -> None:
    """How many elements wait for the device has no influence on what it computes."""
    deep, plain = (
        estimators.make(run=run).evaluate(estimators.feed(2), steps=2) for run in ({"prefetch_depth": 3}, {})
    )

    assert deep["loss"] == plain["loss"]
