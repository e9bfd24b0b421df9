"""Agents: one final class in one file each, readable top to bottom."""
