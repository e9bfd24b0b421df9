"""Runs: training one learner, or a cohort of them, to disk, so that it survives anything."""
