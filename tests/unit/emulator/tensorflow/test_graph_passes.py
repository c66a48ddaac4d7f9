"""Which graphs the host optimizes before it runs them."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance.emulator.tensorflow.activation import LARGEST_UNTOUCHED


def test_functions_run_as_they_were_built(tf: Any) -> None:
    """The runtime optimizes no graph by itself."""
    from tensorflow.python.eager import context

    assert context.context().config.graph_options.rewrite_options.min_graph_nodes == LARGEST_UNTOUCHED


@pytest.mark.parametrize(("asked", "expected"), [(0, LARGEST_UNTOUCHED), (7, 7), (-1, -1)])
def test_a_session_keeps_the_number_that_a_program_sets(tf: Any, asked: int, expected: int) -> None:
    """A session has the number of its configuration, or ours where there is none; the configuration stays."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = asked
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        actual = session._config.graph_options.rewrite_options.min_graph_nodes

    assert actual == expected
    assert config.graph_options.rewrite_options.min_graph_nodes == asked
