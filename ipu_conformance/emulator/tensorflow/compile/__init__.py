"""Compilation of programs: loops, pipelines, shards and replicas in a graph."""
