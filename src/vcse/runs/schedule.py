"""When something is due that happens every so many frames."""


def is_due(every_frames: int, *, frame: int, step_frames: int) -> bool:
    """Whether the last step, which took so many frames, reached or passed a multiple; every 0 frames is never."""
    return every_frames > 0 and frame // every_frames > (frame - step_frames) // every_frames
