"""A table of kills names a case for each fault, or why a device cannot have it."""

from __future__ import annotations

import pytest

from ipu_conformance.matrix import kill_tables
from ipu_conformance.matrix.table import MatrixError

TABLE = """
[execution]
update-halved = training/test_b.py::test_two[x = 1]
slots-lost = /training/test_a.py::test_one[paddle-D2]
[models]
update-halved = /models/test_c.py::test_three
[spared]
masks-repeated = Paddle has one mask
"""


def test_cases_begin_in_the_framework_s_folder_or_with_a_slash_in_the_suite_s(tmp_path):
    """A fault may have several cases, in several sections."""
    path = tmp_path / "paddle.ini"
    path.write_text(TABLE)
    tables = kill_tables.read([path])

    assert sorted(tables.killers["paddle"]["update-halved"]) == [
        "models/test_c.py::test_three",
        "paddle/training/test_b.py::test_two[x = 1]",
    ]
    assert tables.killers["paddle"]["slots-lost"] == ["training/test_a.py::test_one[paddle-D2]"]
    assert tables.spared == {"paddle": {"masks-repeated": "Paddle has one mask"}}


@pytest.mark.parametrize("text", [None, "no section", "[a]\nx = 1\n[a]\nx = 2"], ids=["missing", "bare", "twice"])
def test_a_file_that_holds_no_table_is_one_sentence(text, tmp_path):
    """The file is named."""
    path = tmp_path / "paddle.ini"
    if text is not None:
        path.write_text(text)

    with pytest.raises(MatrixError, match=r"paddle\.ini holds no table of kills"):
        kill_tables.read([path])
