"""Comparison of graphs: normal forms, isomorphism, alignment, differences and patterns."""
