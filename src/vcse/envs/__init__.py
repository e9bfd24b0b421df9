"""Vectorised environments behind one small protocol."""
