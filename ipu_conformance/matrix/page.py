"""The matrix as one HTML page: each fault with the cases that notice it, each family of cases with what it notices."""

from __future__ import annotations

from pathlib import Path

import jinja2

from ipu_conformance import __version__
from ipu_conformance.matrix.table import Matrix


def page(matrix: Matrix) -> str:
    """The page; it loads nothing from elsewhere and can be read without scripts."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frameworks = [
        {
            "name": name,
            "rows": sorted(matrix.rows[name].items()),
            "noticed": sum(bool(row.kills) for row in matrix.rows[name].values()),
            "survivors": matrix.survivors(name),
            "crashed": matrix.crashed_only(name),
            "killing": sorted(matrix.killing(name).items()),
            "idle": matrix.idle(name),
        }
        for name in sorted(matrix.rows)
    ]
    return environment.get_template("page.html").render(frameworks=frameworks, version=__version__)
