"""How Hypothesis draws, in one place."""

from tests.unit import examples

examples.load_profile()
