"""Exact neighbour search: the same distances by several algorithms, chosen by device and size."""
