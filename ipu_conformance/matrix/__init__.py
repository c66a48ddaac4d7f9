"""The matrix of faults and cases: which case of the suite notices which way for a device to be wrong.

``recording`` notes the places of faults that each case passes, ``session`` runs cases under faults in one process,
``search`` decides which to run, ``table`` is what is published.
"""
