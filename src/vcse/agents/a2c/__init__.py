"""Advantage actor-critic."""
