"""Packages beside poptorch: what they cannot do, they say."""

from __future__ import annotations

import pytest

from ipu_conformance.emulator.poptorch.beside import popart


@pytest.mark.parametrize("session", [popart.InferenceSession, popart.TrainingSession])
def test_a_session_of_popart_is_refused_in_a_sentence(session: type) -> None:
    """The error is one line that names the session and what to use."""
    with pytest.raises(popart.popart_exception, match=f"popart.{session.__name__} .*poptorch") as refused:
        session(fnModel="model.onnx")

    assert len(str(refused.value).splitlines()) == 1
