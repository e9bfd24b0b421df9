"""When something is due that happens every so many frames, and what never comes in runs that are too short."""

EAGER_UPDATES = 3  # before one is captured as a CUDA graph
TIMING_FRAMES = 1000  # between rows of timing.csv: where updates are slow, those of train.csv are an hour apart
SECONDS_BETWEEN_REPORTS = 1.0
MOST_SECONDS_UNSAVED = 600.0  # where updates are slow, the frames between two checkpoints take hours


def is_due(every_frames: int, *, frame: int, step_frames: int) -> bool:
    """Whether the last step, which took so many frames, reached or passed a multiple; every 0 frames is never."""
    return every_frames > 0 and frame // every_frames > (frame - step_frames) // every_frames


def nothing_learned(frames: int, updated: int, seed_frames: int) -> str:
    """Return a warning for a run that ends before its first update, and so learns nothing."""
    return (
        f"nothing is learned in {frames:,} frames: the first update comes within {updated:,}, after seed_frames "
        f"{seed_frames:,} of random actions"
    )


def few_transitions(kept: int, sampled: int) -> str:
    """Return a warning for a run whose replay never holds a whole batch of distinct transitions; else empty."""
    if kept >= sampled:
        return ""
    return f"every batch of {sampled:,} holds transitions more than once: there are never more than {max(kept, 0):,}"
