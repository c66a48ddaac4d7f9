"""Readers of graphs, one folder or module each; every one takes hostile input and answers with one sentence."""
