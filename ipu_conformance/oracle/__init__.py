"""The executable specification: what every op, optimizer and training step computes, and how far a device may be off.

- ``ops``: the table ``OPS`` of forward functions, gradients and error models, a file per family.
- ``training``: what a training run means: layers, optimizers, schedules, accumulation, replicas and stages.
- ``tolerance``: error bounds derived from number formats, reduction lengths and magnitudes, and from random rounding.
- ``exact``, ``regression``, ``recurrence``: problems whose result is known, to the bit or within a tolerance.
- ``convergence``: baselines, and the statistics that judge a run by them.
"""
