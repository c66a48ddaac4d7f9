"""Rows of the old API: every one has its parameters of then, and leads to something that Paddle has now."""

import inspect

import pytest

from ipu_conformance.emulator.paddle.legacy import dygraph, initializer, layers, optimizer, table

ROWS = {row.name: row for module in (layers, optimizer, initializer, dygraph) for row in module.ROWS}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_leads_to_something_that_paddle_has(name):
    """A path below ``paddle`` exists and takes what the row passes on, under the names that it has now."""
    row = ROWS[name]
    words = [word for word in table.signature(row.parameters).parameters if word not in row.dropped]
    passed = [row.renamed.get(word, word) for word in words]
    if not isinstance(row.work, str):
        assert callable(row.work)
        return
    accepted = inspect.signature(table.found(row.work)).parameters
    any_word = any(one.kind is one.VAR_KEYWORD for one in accepted.values())

    assert any_word or {word for word in passed if word != table.ACT or table.ACT in row.renamed} <= set(accepted)


def test_parameters_and_defaults_are_those_of_the_text():
    """A signature has the names in order, and the defaults as values."""
    form = table.signature("input, size, act=None, shape=[2, 3], name='x'")

    assert list(form.parameters) == ["input", "size", "act", "shape", "name"]
    assert [one.default for one in form.parameters.values()][2:] == [None, [2, 3], "x"]


def test_a_function_tells_its_old_signature():
    """What inspection sees is the old definition."""
    form = inspect.signature(layers.__getattr__("softmax"))

    assert str(form) == "(input, use_cudnn=False, name=None, axis=-1)"


def test_a_wrong_word_is_python_s_own_error():
    """A parameter that the old function did not have is refused as by any function."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        layers.__getattr__("softmax")(input=0, x=1)
