"""``python -m ipu_conformance`` is the ``ipu-conformance`` command."""

import sys

from ipu_conformance.cli import main

sys.exit(main())
