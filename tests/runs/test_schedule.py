import pytest

from vcse.runs.schedule import is_due


@pytest.mark.parametrize(
    ("every_frames", "step_frames", "due"),
    [
        (20, 1, [20, 40, 60]),
        (20, 2, [20, 40, 60]),
        (5, 2, [6, 10, 16, 20, 26, 30, 36, 40, 46, 50, 56, 60]),  # a multiple within a step is due at its end
        (20, 32, [32, 64]),  # also where a step passes several
        (64, 32, [64]),
        (61, 1, [61]),
        (0, 1, []),
    ],
)
def test_due_is_whatever_step_reaches_or_passes_a_multiple(every_frames, step_frames, due):
    frames = range(step_frames, 65, step_frames)
    assert [frame for frame in frames if is_due(every_frames, frame=frame, step_frames=step_frames)] == due
