"""Trained policies for vcse, as data: `vcse.load_policy("minigrid/LavaGapS7/vcse")` and `vcse watch` find them here."""
