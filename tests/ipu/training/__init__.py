"""The rules of training that every framework keeps: each case runs on all three, for a table of configurations."""

from .frame import *  # noqa: F403  the vendors' own folders use the same runs
