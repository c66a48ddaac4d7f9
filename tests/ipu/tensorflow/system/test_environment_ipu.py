"""TF_POPLAR_FLAGS: its switches, and that they are read each time they are needed."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check

CATEGORIES = ("Infeed", "Outfeed", "Seed", "HostEmbedding", "Parameters")
Flags = Callable[[str], None]


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Flags:
    """Sets TF_POPLAR_FLAGS."""
    return lambda text: monkeypatch.setenv("TF_POPLAR_FLAGS", text)


MODEL = (
    "--use_ipu_model", "--use_ipu_model=true", "--use_ipu_model=1", "--use_synthetic_data --use_ipu_model",
    "  --use_ipu_model   --max_compilation_threads=4 ", "--executable_cache_path='/a b/c' --use_ipu_model",
)  # fmt: skip
HARDWARE = ("", "--use_ipu_model=false", "--use_ipu_model=0", "--use_synthetic_data", "--executable_cache_path=/tmp")


@pytest.mark.parametrize("text", [*MODEL, *(pytest.param(text, marks=pytest.mark.emulator) for text in HARDWARE)])
def test_the_ipu_model_is_asked_for(ipu: Any, flags: Flags, text: str) -> None:
    """The switch may be anywhere among the flags, with or without a value; without it, or with it off, it is not."""
    flags(text)

    running = ipu.utils.running_on_ipu_model()
    check.identical(actual=running, expected=text in MODEL, what=f"running_on_ipu_model with {text}")


@pytest.mark.emulator
def test_flags_are_read_when_they_are_needed(ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that is set or removed after the import takes effect at once."""
    answers = []
    for text in ("--use_ipu_model", "", "--use_ipu_model", None):
        monkeypatch.delenv("TF_POPLAR_FLAGS") if text is None else monkeypatch.setenv("TF_POPLAR_FLAGS", text)
        answers.append(ipu.utils.running_on_ipu_model())

    what = "running_on_ipu_model with the switch, without it, with it, and without the variable"
    check.equal(actual=answers, expected=[True, False, True, False], what=what)


SYNTHETIC = {
    "": [],
    "--use_synthetic_data": [*CATEGORIES],
    "--synthetic_data_categories='infeed, seed'": ["Infeed", "Seed"],
    **{
        f"--synthetic_data_categories={text(category)}": [category]
        for category in CATEGORIES
        for text in (str.lower, str.title, str)
    },
}
"""The categories that are synthetic: none, all, several separated by commas, and each alone in any case."""


@pytest.mark.parametrize("text", SYNTHETIC)
def test_synthetic_data_stand_for_categories(ipu: Any, flags: Flags, text: str) -> None:
    """--use_synthetic_data makes every category synthetic, --synthetic_data_categories those that it names."""
    flags(text)

    categories = ipu.utils.SyntheticDataCategory
    names = [name for name in CATEGORIES if ipu.utils.use_synthetic_data_for(categories[name])]
    check.equal(actual=names, expected=SYNTHETIC[text], what="the synthetic categories")


@pytest.mark.emulator
@pytest.mark.parametrize("wrong", ["infeed", 0, None], ids=repr)
def test_a_category_is_a_member(ipu: Any, wrong: Any) -> None:
    """A category is a member of the enumeration."""
    with check.raises(ValueError, match="category", what=f"use_synthetic_data_for({wrong!r})"):
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
def test_a_switch_that_does_not_exist_is_refused(ipu: Any, flags: Flags, text: str, named: str) -> None:
    """An unknown switch, or a value of a wrong kind, is an error that names it."""
    flags(text)

    with check.raises(ValueError, match="TF_POPLAR_FLAGS", what=text) as caught:
        ipu.utils.running_on_ipu_model()
    check.contains(actual=str(caught.value), expected=named, what=f"the refusal of {text}")


@pytest.mark.parametrize("ipus", [1, 3, 6])
def test_the_ipu_model_has_any_number_of_ipus(ipu: Any, flags: Flags, configure: Any, ipus: int) -> None:
    """A device of the IPU model has any number of IPUs."""
    flags("--use_ipu_model")
    configure(ipus)

    number = ipu.utils.get_num_of_ipus_in_device("/device:IPU:0")
    check.equal(actual=number, expected=ipus, what="the number of IPUs in the device")


@pytest.mark.parametrize("version", ["ipu1", "ipu2"])
def test_the_ipu_model_has_a_version(tf: Any, flags: Flags, configure: Any, version: str) -> None:
    """The version of the IPU model can be chosen, and functions run on it."""
    flags("--use_ipu_model")
    config = configure(1, ipu_model__version=version)

    check.equal(actual=config.ipu_model.version, expected=version, what="the version of the IPU model")
    with tf.device("/device:IPU:0"):
        product = tf.function(lambda: tf.constant(2.0) * 3.0)()
    check.equal(actual=float(product), expected=6.0, what=f"2 * 3 on {version}")


@pytest.mark.emulator
@pytest.mark.parametrize("ipus", [1, 4])
@pytest.mark.parametrize("text", ["--use_synthetic_data", "--synthetic_data_categories=infeed"])
def test_synthetic_data_are_not_taken_from_the_host(
    tf: Any, flags: Flags, strategy_on: Any, text: str, ipus: int
) -> None:
    """With synthetic infeeds a function computes with zeros of the right shape, and takes nothing from its iterator."""
    strategy = strategy_on(ipus)
    iterator = iter(tf.data.Dataset.range(1, 100).batch(3, drop_remainder=True))
    taken = tf.function(lambda elements: next(elements))
    flags(text)
    elements = [strategy.run(taken, args=(iterator,)).numpy().tolist() for _ in range(3)]
    flags("")
    elements.append(strategy.run(taken, args=(iterator,)).numpy().tolist())

    expected = [[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 2, 3]]
    check.equal(actual=elements, expected=expected, what="the elements of 3 synthetic runs, and of one that is not")


@pytest.mark.emulator
@pytest.mark.parametrize(("text", "expected"), [("", 0.0), ("2.5", 2.5), ("random", None)])
def test_synthetic_data_have_an_initializer(tf: Any, strategy: Any, flags: Flags, text: str, expected: Any) -> None:
    """Synthetic data are zeros, a number, or random; labels are never random."""
    iterator = iter(tf.data.Dataset.from_tensors((tf.ones([8]), tf.ones([8], tf.int32))))
    flags(f"--use_synthetic_data --synthetic_data_initializer={text}")
    features, labels = strategy.run(tf.function(lambda elements: next(elements)), args=(iterator,))

    if expected is None:
        check.identical(actual=labels.numpy(), expected=np.zeros(8, np.int32), what="the labels beside random features")
        values = features.numpy().tolist()
        check.holds(len(set(values)) == 8, f"8 random features are {values}, some of them alike.")
    else:
        check.dtype(actual=labels.numpy(), expected=np.int32, what="the labels")
        check.identical(actual=features.numpy(), expected=np.full(8, expected, np.float32), what="the features")


@pytest.mark.emulator
def test_an_initializer_is_a_number_or_random(tf: Any, strategy: Any, flags: Flags) -> None:
    """An initializer of synthetic data that is neither a number nor "random" is refused."""
    flags("--use_synthetic_data --synthetic_data_initializer=ones")

    with check.raises(ValueError, match="synthetic_data_initializer", what="the synthetic_data_initializer ones"):
        strategy.run(tf.function(lambda elements: next(elements)), args=(iter(tf.data.Dataset.range(3)),))
