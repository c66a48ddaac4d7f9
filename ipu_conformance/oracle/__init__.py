"""The executable specification: what every op, optimizer and training step computes, and how far a device may be off.

- ``ops``: the table ``OPS`` of forward functions, gradients and error models, a file per family.
- ``tolerance``: error bounds derived from number formats, reduction lengths and magnitudes.
- ``witnesses``: the same ops by libraries that are not ours.
- ``python -m ipu_conformance.oracle`` prints how well the three agree.
"""
