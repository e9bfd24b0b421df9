"""How long each study takes as a whole, for `vcse study list`, which must not wait for what simulates its tasks.

The numbers follow from the costs of the agents, which were measured; a test holds the two against each other.
"""

CORES = 2
MACHINES = (f"{CORES} cores", "one H200")
HOURS = {  # on each of them
    "minigrid": (2.0, 0.14),
    "minigrid-beta-se": (0.17, 0.012),
    "minigrid-beta-vcse": (0.14, 0.0094),
    "minigrid-k": (0.1, 0.0071),
    "minigrid-values": (2.8, 5.6),
    "minigrid-heatmap": (0.051, 0.1),
    "minigrid-full": (6.6, 13.0),
    "dmc-pixels": (12000.0, 80.0),
    "dmc-pixels-rcse": (3100.0, 18.0),
    "dmc-pixels-batch": (2000.0, 8.9),
    "dmc-pixels-beta-se": (2000.0, 8.9),
    "dmc-pixels-decay": (11000.0, 67.0),
    "dmc-pixels-controls": (1200.0, 11.0),
    "dmc-states": (8600.0, 9.0),
    "dmc-states-controls": (670.0, 0.69),
    "metaworld": (5300.0, 40.0),
    "metaworld-remedies": (72.0, 0.5),
    "metaworld-clean": (220.0, 1.7),
    "metaworld-mwm": (130000.0, 180.0),
    "metaworld-mwm-controls": (8200.0, 11.0),
    "minigrid-readings": (0.84, 0.057),
    "minigrid-controls": (0.69, 0.047),
    "minigrid-value": (17.0, 1.2),
    "value-fork": (0.37, 0.73),
}
