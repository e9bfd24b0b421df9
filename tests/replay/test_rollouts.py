import pytest
import torch

from vcse.replay.rollouts import Rollouts

LEARNERS, ENVIRONMENTS, STEPS, SHAPE = 3, 4, 5, (7, 7, 3)


def make(*, keep_next_observations=True):
    return Rollouts(
        learners=LEARNERS,
        environments=ENVIRONMENTS,
        steps=STEPS,
        observation_shape=SHAPE,
        keep_next_observations=keep_next_observations,
        device=torch.device("cpu"),
    )


def draw(learners, generator):
    """What a step of some learners gives, all different."""
    shape = (learners, ENVIRONMENTS)
    return {
        "rewards": torch.rand(shape, generator=generator),
        "terminated": torch.rand(shape, generator=generator) < 0.5,
        "truncated": torch.rand(shape, generator=generator) < 0.5,
        "next_observations": torch.randint(0, 11, (*shape, *SHAPE), generator=generator).to(torch.uint8),
        "next_positions": torch.randint(1, 6, (*shape, 2), generator=generator),
    }


def test_every_axis_is_where_the_shapes_say():
    rollout = make().complete()
    shape = (LEARNERS, ENVIRONMENTS, STEPS)
    assert rollout.observations.shape == (LEARNERS, ENVIRONMENTS, STEPS + 1, *SHAPE)
    for each in (rollout.actions, rollout.rewards, rollout.terminated, rollout.truncated):
        assert each.shape == shape
    assert rollout.positions.shape == (*shape, 2)
    assert rollout.next_observations.shape == (*shape, *SHAPE)
    assert rollout.next_positions.shape == (*shape, 2)
    assert make(keep_next_observations=False).complete().next_observations is None
    assert make(keep_next_observations=False).complete().next_positions is None


@pytest.mark.parametrize("keep_next_observations", [True, False])
def test_what_groups_of_learners_give_stands_at_their_place_and_step(keep_next_observations):
    rollouts, generator = make(keep_next_observations=keep_next_observations), torch.Generator().manual_seed(0)
    given = {}
    for step in range(STEPS):
        for learners in (slice(1, 3), slice(0, 1)):  # in no particular order
            given[step, learners.start] = draw(learners.stop - learners.start, generator)
            rollouts.keep(learners, step, **given[step, learners.start])
            positions = torch.randint(1, 6, (learners.stop - learners.start, ENVIRONMENTS, 2), generator=generator)
            rollouts.keep_positions(learners, step, positions)
            given[step, learners.start]["positions"] = positions.float()
    rollout = rollouts.complete()
    for (step, start), numbers in given.items():
        learners = slice(0, 1) if start == 0 else slice(1, 3)
        for name, expected in numbers.items():
            if keep_next_observations or not name.startswith("next_"):
                assert torch.equal(
                    getattr(rollout, name)[learners, :, step], expected.to(getattr(rollout, name).dtype)
                ), name


def test_the_memory_is_overwritten_by_the_next_rollout():
    rollouts, generator = make(), torch.Generator().manual_seed(0)
    rollouts.keep(slice(0, 3), 0, **draw(3, generator))
    first = rollouts.complete()
    second = draw(3, generator)
    rollouts.keep(slice(0, 3), 0, **second)
    assert rollouts.complete() is first  # what was captured as a CUDA graph reads from the same place
    assert torch.equal(first.rewards[:, :, 0], second["rewards"])


def test_one_moment_of_all_learners_lies_together_in_memory():
    rollout = make().complete()
    for each in (rollout.observations, rollout.actions, rollout.rewards):
        assert each[:, :, 2].is_contiguous()
