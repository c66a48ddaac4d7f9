"""What a configuration of paddle.inference asks of the IPU."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, Dict

import pytest
from paddle.base import core

from ipu_conformance.emulator.paddle.api import inference_config
from ipu_conformance.emulator.paddle.api.inference_config import IpuSettings, settings_of
from ipu_conformance.emulator.paddle.errors import InvalidArgument, NotFound


def test_a_new_configuration_does_not_use_the_ipu() -> None:
    """Nothing is enabled until enable_ipu is called, on that configuration alone."""
    used, other = core.AnalysisConfig(), core.AnalysisConfig()
    inference_config.enable_ipu(used)

    assert settings_of(used).enabled
    assert settings_of(other) == IpuSettings()


def test_settings_end_with_their_configuration() -> None:
    """A configuration that is gone leaves nothing behind."""
    before = len(inference_config._SETTINGS)
    config = core.AnalysisConfig()
    inference_config.enable_ipu(config)
    del config
    gc.collect()

    assert len(inference_config._SETTINGS) == before


def test_every_setting_reaches_the_strategy() -> None:
    """What is set on the configuration is asked of the device."""
    config = core.AnalysisConfig()
    inference_config.enable_ipu(config, 4, 3, True, 7)
    inference_config.set_ipu_config(config, True, 2, 0.5, True, True)
    inference_config.set_ipu_custom_info(config, [["a", "A", "custom.ops", "2"]], {"InPlace": False, "Other": True})
    strategy = settings_of(config).strategy()
    expected = {
        "is_training": False,
        "num_ipus": 4,
        "micro_batch_size": 3,
        "enable_pipelining": True,
        "batches_per_step": 7,
        "enable_fp16": True,
        "replicated_graph_count": 2,
        "enable_replicated_graphs": True,
        "available_memory_proportion": 0.5,
        "enable_half_partial": True,
        "enable_model_runtime_executor": True,
        "need_avg_shard": True,
        "enable_manual_shard": True,
    }

    assert {name: strategy.value(name) for name in expected} == expected
    assert [(op.paddle_op, op.popart_op, op.domain, op.version) for op in strategy.custom_ops] == [
        ("a", "A", "custom.ops", 2)
    ]
    assert (strategy.is_pattern_enabled("InPlace"), strategy.is_pattern_enabled("Other")) == (False, True)


@pytest.mark.parametrize(("ipus", "replicas"), [(1, 1), (2, 2)])
def test_one_ipu_for_each_replica_is_not_cut(ipus: int, replicas: int) -> None:
    """The program is cut only where a replica has several IPUs."""
    strategy = IpuSettings(ipu_device_num=ipus, ipu_replica_num=replicas).strategy()

    assert not strategy.value("need_avg_shard")
    assert not strategy.value("enable_manual_shard")


FILE = """ipu_device_num, 2
ipu_micro_batch_size,3
ipu_enable_pipelining,True
ipu_batches_per_step,5
ipu_enable_fp16,true
ipu_replica_num,1
ipu_available_memory_proportion,0.25
ipu_enable_half_partial,1
ipu_enable_model_runtime_executor,False
ipu_custom_ops_info,[[a,A,custom.ops,1],[b,B,custom.ops,2]]
ipu_custom_patterns,[[InPlace,False]]
"""


def test_settings_are_read_from_a_file(tmp_path: Path) -> None:
    """A line has a name, a comma and a value; spaces do not count, and enabling is left to enable_ipu."""
    path = tmp_path / "ipu.cfg"
    path.write_text(FILE, encoding="utf-8")
    config = core.AnalysisConfig()
    inference_config.load_ipu_config(config, str(path))

    assert settings_of(config) == IpuSettings(
        False, 2, 3, True, 5, True, 1, 0.25, True, False,
        (("a", "A", "custom.ops", "1"), ("b", "B", "custom.ops", "2")), (("InPlace", False),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ipu_device_num=2", "invalid key ipu_device_num=2 in IPU config"),
        ("", "invalid key  in IPU config"),
        ("ipu_device_num,two", "invalid value two of ipu_device_num"),
        ("ipu_batches_per_step,0", "whole number from 1"),
        ("ipu_custom_ops_info,a", "invalid value a of ipu_custom_ops_info"),
        ("ipu_custom_ops_info,[[a,A,custom.ops]]", "a custom op has"),
        ("ipu_custom_patterns,[[a]]", "a pattern has"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path: Path, line: str, sentence: str) -> None:
    """One sentence names the key or the value, and nothing of the file is set."""
    path = tmp_path / "ipu.cfg"
    path.write_text("ipu_replica_num,2\n" + line + "\n", encoding="utf-8")
    config = core.AnalysisConfig()

    with pytest.raises(InvalidArgument, match=sentence):
        inference_config.load_ipu_config(config, str(path))

    assert settings_of(config) == IpuSettings()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The sentence is the stock wheel's own."""
    with pytest.raises(NotFound, match=r"Cannot open file .*none\.cfg, please confirm whether the file is normal"):
        inference_config.load_ipu_config(core.AnalysisConfig(), str(tmp_path / "none.cfg"))


@pytest.mark.parametrize("wrong", [{"ipu_device_num": 0}, {"ipu_micro_batch_size": -1}, {"ipu_batches_per_step": True}])
def test_a_wrong_count_is_refused(wrong: Dict[str, Any]) -> None:
    """Counts are whole numbers from 1."""
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        inference_config.enable_ipu(core.AnalysisConfig(), **wrong)


@pytest.mark.parametrize("row", [["a", "A", "custom.ops"], ["a", "A", "custom.ops", "one"]])
def test_a_custom_op_has_four_words(row: Any) -> None:
    """The last of them is the version, in digits."""
    with pytest.raises(InvalidArgument, match="Invalid setting for a custom op"):
        inference_config.set_ipu_custom_info(core.AnalysisConfig(), [row])
