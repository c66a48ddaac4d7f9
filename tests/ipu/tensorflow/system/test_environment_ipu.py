"""Environment variables: TF_POPLAR_FLAGS counts whenever something asks."""

from __future__ import annotations

from typing import Any, Callable

import pytest

CATEGORIES = ("Infeed", "Outfeed", "Seed", "HostEmbedding", "Parameters")


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets TF_POPLAR_FLAGS."""
    return lambda text: monkeypatch.setenv("TF_POPLAR_FLAGS", text)


@pytest.mark.parametrize(
    "text",
    [
        "--use_ipu_model",
        "--use_ipu_model=true",
        "--use_ipu_model=1",
        "--use_synthetic_data --use_ipu_model",
        "  --use_ipu_model   --max_compilation_threads=4 ",
        "--executable_cache_path='/a b/c' --use_ipu_model",
    ],
)
def test_the_ipu_model_is_asked_for(ipu: Any, flags: Callable[[str], None], text: str) -> None:
    """The switch may stand anywhere, with or without a value."""
    flags(text)

    assert ipu.utils.running_on_ipu_model() is True


@pytest.mark.emulator
@pytest.mark.parametrize(
    "text", ["", "--use_ipu_model=false", "--use_ipu_model=0", "--use_synthetic_data", "--executable_cache_path=/tmp"]
)
def test_the_ipu_model_is_not_asked_for(ipu: Any, flags: Callable[[str], None], text: str) -> None:
    """Without the switch, or with it turned off, the device is hardware."""
    flags(text)

    assert ipu.utils.running_on_ipu_model() is False


@pytest.mark.emulator
def test_flags_are_read_when_they_are_needed(ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that is set or removed after the import counts at once."""
    answers = []
    for text in ("--use_ipu_model", "", "--use_ipu_model"):
        monkeypatch.setenv("TF_POPLAR_FLAGS", text)
        answers.append(ipu.utils.running_on_ipu_model())
    monkeypatch.delenv("TF_POPLAR_FLAGS")
    answers.append(ipu.utils.running_on_ipu_model())

    assert answers == [True, False, True, False]


@pytest.mark.parametrize("category", CATEGORIES)
def test_synthetic_data_stand_for_everything(ipu: Any, flags: Callable[[str], None], category: str) -> None:
    """--use_synthetic_data is about every category."""
    wanted = ipu.utils.SyntheticDataCategory[category]
    flags("")
    before = ipu.utils.use_synthetic_data_for(wanted)
    flags("--use_synthetic_data")

    assert [before, ipu.utils.use_synthetic_data_for(wanted)] == [False, True]


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("text", [str.lower, str.title, str])
def test_synthetic_data_stand_for_one_category(
    ipu: Any, flags: Callable[[str], None], category: str, text: Callable[[str], str]
) -> None:
    """--synthetic_data_categories names the categories one by one, in any case."""
    flags(f"--synthetic_data_categories={text(category)}")

    assert [name for name in CATEGORIES if ipu.utils.use_synthetic_data_for(ipu.utils.SyntheticDataCategory[name])] == [
        category
    ]


def test_synthetic_data_stand_for_several_categories(ipu: Any, flags: Callable[[str], None]) -> None:
    """Several categories are separated by commas."""
    flags("--synthetic_data_categories='infeed, seed'")

    assert [name for name in CATEGORIES if ipu.utils.use_synthetic_data_for(ipu.utils.SyntheticDataCategory[name])] == [
        "Infeed",
        "Seed",
    ]


@pytest.mark.emulator
@pytest.mark.parametrize("wrong", ["infeed", 0, None], ids=repr)
def test_a_category_is_a_member(ipu: Any, wrong: Any) -> None:
    """Synthetic data are asked for by a member of the enumeration."""
    with pytest.raises(ValueError, match="category"):
        ipu.utils.use_synthetic_data_for(wrong)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("--no_such_switch", "--no_such_switch"),
        ("use_ipu_model", "use_ipu_model"),
        ("-use_ipu_model", "-use_ipu_model"),
        ("--use_ipu_model=maybe", "maybe"),
        ("--max_compilation_threads=many", "many"),
        ("--executable_cache_path", "executable_cache_path"),
        ("--synthetic_data_categories=weather", "weather"),
        ("--executable_cache_path='open", "quotation"),
    ],
)
def test_a_switch_that_does_not_exist_is_refused(ipu: Any, flags: Callable[[str], None], text: str, named: str) -> None:
    """An unknown switch, or a value of a wrong kind, is an error that names it."""
    flags(text)

    with pytest.raises(ValueError, match="TF_POPLAR_FLAGS") as caught:
        ipu.utils.running_on_ipu_model()

    assert named in str(caught.value)


@pytest.mark.parametrize("ipus", [1, 3, 6])
def test_the_ipu_model_has_any_number_of_ipus(
    ipu: Any, flags: Callable[[str], None], configure: Callable[..., Any], ipus: int
) -> None:
    """The IPU model makes devices of any number of IPUs."""
    flags("--use_ipu_model")
    configure(ipus)

    assert ipu.utils.get_num_of_ipus_in_device("/device:IPU:0") == ipus


@pytest.mark.parametrize("version", ["ipu1", "ipu2"])
def test_the_ipu_model_has_a_version(
    tf: Any, flags: Callable[[str], None], configure: Callable[..., Any], version: str
) -> None:
    """The IPU that the model stands for can be chosen; functions run on it."""
    flags("--use_ipu_model")
    configure(1, ipu_model__version=version)

    with tf.device("/device:IPU:0"):
        assert float(tf.function(lambda: tf.constant(2.0) * 3.0)()) == 6.0


@pytest.mark.emulator
@pytest.mark.parametrize("ipus", [1, 2])
@pytest.mark.parametrize("text", ["--use_synthetic_data", "--synthetic_data_categories=infeed"])
def test_synthetic_data_are_not_taken_from_the_host(
    tf: Any, flags: Callable[[str], None], strategy_on: Any, text: str, ipus: int
) -> None:
    """With synthetic infeeds a function computes with zeros of the right shape, and takes nothing from its iterator."""
    strategy = strategy_on(ipus)
    iterator = iter(tf.data.Dataset.range(1, 100).batch(3, drop_remainder=True))
    taken = tf.function(lambda elements: next(elements))
    flags(text)
    synthetic = [strategy.run(taken, args=(iterator,)).numpy().tolist() for _ in range(2)]
    flags("")

    assert synthetic == [[0, 0, 0]] * 2
    assert strategy.run(taken, args=(iterator,)).numpy().tolist() == [1, 2, 3]


@pytest.mark.emulator
@pytest.mark.parametrize(("text", "expected"), [("", {0.0}), ("2.5", {2.5}), ("random", None)])
def test_synthetic_data_have_an_initializer(
    tf: Any, strategy: Any, flags: Callable[[str], None], text: str, expected: Any
) -> None:
    """Synthetic data are zeros, a number, or random; labels are never random."""
    iterator = iter(tf.data.Dataset.from_tensors((tf.ones([8]), tf.ones([8], tf.int32))))
    flags(f"--use_synthetic_data --synthetic_data_initializer={text}")
    features, labels = strategy.run(tf.function(lambda elements: next(elements)), args=(iterator,))
    values = set(features.numpy().tolist())

    assert labels.dtype == tf.int32
    if expected is None:
        assert len(values) == 8
        assert set(labels.numpy().tolist()) == {0}
    else:
        assert values == expected


@pytest.mark.emulator
def test_an_initializer_is_a_number_or_random(tf: Any, strategy: Any, flags: Callable[[str], None]) -> None:
    """Any other initializer of synthetic data is refused."""
    flags("--use_synthetic_data --synthetic_data_initializer=ones")

    with pytest.raises(ValueError, match="synthetic_data_initializer"):
        strategy.run(tf.function(lambda elements: next(elements)), args=(iter(tf.data.Dataset.range(3)),))
