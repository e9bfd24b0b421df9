"""Simulated robots: DeepMind Control and Meta-World, from states and from images."""
