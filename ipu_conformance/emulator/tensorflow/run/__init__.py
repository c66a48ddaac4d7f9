"""Execution: machines, replicas, collectives, variables and strategies."""
