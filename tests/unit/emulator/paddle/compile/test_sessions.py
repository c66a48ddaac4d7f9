"""What surrounds compiling: environment variables, requests of the device, and the cache; no Paddle is imported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, Optional

import pytest

from ipu_conformance.emulator.core.device import EMULATED_IPUS
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile import environment, sessions
from ipu_conformance.emulator.paddle.errors import InvalidArgument, Unavailable, Unimplemented


def strategy(**options: Any) -> IpuStrategy:
    """A strategy with those options."""
    made = IpuStrategy()
    made.set_options(options)
    return made


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine reaches a test."""
    own = (environment.IPU_MODEL, environment.CACHE_PATH, environment.ONNX_DUMP_PATH, environment.COMPILE_ONLY)
    for name in (*own, *environment.INSTANCES):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", True),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("0", False),
        ("", False),
        ("yes", False),
        ("2", False),
    ],
)
def test_flags_have_four_spellings(text: str, expected: bool) -> None:
    """A flag is on when it is 1 or a spelling of true."""
    assert environment.uses_model({environment.IPU_MODEL: text}) is expected
    assert environment.compile_only({environment.COMPILE_ONLY: text}) is expected


def test_flags_are_off_when_they_are_not_set() -> None:
    """Without a variable nothing is asked for."""
    assert not environment.uses_model({})
    assert not environment.compile_only({})


@pytest.mark.parametrize(
    ("variable", "option", "expected"),
    [(None, "", None), (None, "o", "o"), ("v", "", "v"), ("v", "o", "v"), ("", "o", "o")],
)
def test_the_variable_beats_the_option(variable: Optional[str], option: str, expected: Optional[str]) -> None:
    """Where both name a file the variable counts; an empty one is as none."""
    given: Dict[str, str] = {} if variable is None else {environment.ONNX_DUMP_PATH: variable}

    assert environment.onnx_dump_path(strategy(onnx_dump_path=option), given) == expected


@pytest.mark.parametrize(
    ("variable", "enabled", "expected"),
    [(None, False, None), (None, True, "kept"), ("v", False, "v"), ("v", True, "v"), ("", False, None)],
)
def test_the_variable_turns_the_cache_on(variable: Optional[str], enabled: bool, expected: Optional[str]) -> None:
    """The option's folder counts only where caching is enabled."""
    given: Dict[str, str] = {} if variable is None else {environment.CACHE_PATH: variable}

    assert environment.cache_path(strategy(enable_engine_caching=enabled, cache_path="kept"), given) == expected


def test_the_model_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """All emulated IPUs are there unless the model is asked for."""
    everything = environment.device_count()
    monkeypatch.setenv(environment.IPU_MODEL, "1")

    assert (everything, environment.device_count()) == (EMULATED_IPUS, 1)


@pytest.mark.parametrize("name", sessions.COUNTS)
def test_a_count_of_nothing_is_refused(name: str) -> None:
    """Every count is at least one."""
    with pytest.raises(InvalidArgument, match=f"The option {name} is 0: set it to 1 or more"):
        sessions.check(strategy(**{name: 0}))


@pytest.mark.parametrize("ipus", [EMULATED_IPUS // 2 + 1, EMULATED_IPUS])
def test_all_ipus_can_be_attached(ipus: int) -> None:
    """What rounds up to all IPUs is still there."""
    sessions.check(strategy(num_ipus=ipus))


def test_one_more_ipu_cannot_be_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond, the next power of two is missing; the model has as many as are asked for."""
    with pytest.raises(Unavailable, match=f"Can't attach IPU, ipu_num = {2 * EMULATED_IPUS}"):
        sessions.check(strategy(num_ipus=EMULATED_IPUS + 1))
    monkeypatch.setenv(environment.IPU_MODEL, "1")
    sessions.check(strategy(num_ipus=EMULATED_IPUS + 1))


DISTRIBUTED = {
    "enable_distributed_replicated_graphs": True,
    "global_replication_factor": 4,
    "replicated_graph_count": 2,
}


def test_training_in_step_with_other_processes_is_refused() -> None:
    """Gradients do not cross processes, and one sentence says so and what to do instead."""
    with pytest.raises(Unimplemented) as caught:
        sessions.check(strategy(**DISTRIBUTED))

    assert str(caught.value) == (
        "(Unimplemented) Training 4 replicas in several processes, 2 of them here, needs gradients of the other "
        "processes, which the emulator does not exchange: give one process all replicas, with "
        "replicated_graph_count and without enable_distribution and enable_distributed_replicated_graphs"
    )


@pytest.mark.parametrize("variable", environment.INSTANCES)
def test_training_with_distribution_in_several_processes_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Whichever command started the processes; one process, or inference, is sound."""
    monkeypatch.setenv(variable, "2")
    with pytest.raises(Unimplemented, match="Training with enable_distribution in 2 processes needs gradients"):
        sessions.check(strategy(enable_distribution=True))
    sessions.check(strategy(enable_distribution=True, is_training=False))
    sessions.check(strategy())
    monkeypatch.setenv(variable, "1")
    sessions.check(strategy(enable_distribution=True))


@pytest.mark.parametrize(
    "change",
    [
        {"is_training": False},
        {"enable_distributed_replicated_graphs": False},
        {"global_replication_factor": 2},
        {"replicated_graph_count": 4},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_needs_no_other_process_is_accepted(change: Dict[str, Any]) -> None:
    """Inference, replicas that are not joined, and all replicas in one process are sound."""
    sessions.check(strategy(**{**DISTRIBUTED, **change}))


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the folder's place is named, and what to do."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(environment.CACHE_PATH, str(tmp_path / "file"))
    desc = SimpleNamespace(serialize_to_string=lambda: b"program")
    record = SimpleNamespace(original=SimpleNamespace(desc=desc), strategy=strategy(), feeds=("x",), fetches=("y",))
    with pytest.raises(Unavailable, match=r"cannot be written: .*; name another folder"):
        sessions.finish(record)
