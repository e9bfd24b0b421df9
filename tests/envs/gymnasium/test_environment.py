from collections import Counter

import numpy as np
import pytest
from gymnasium import spaces
from runs.small_gymnasium import LENGTH, MODULE, Walk, task

from vcse.envs.gymnasium.environment import (
    ContinuousEnvironments,
    DiscreteEnvironments,
    GymnasiumEnvironment,
    is_deterministic,
)
from vcse.envs.interface import Environments, Making, SeededEpisodes
from vcse.envs.tasks import make_environments
from vcse.streams import episode_seed

LEFT, RIGHT = 0, 1


def walk(name="Walk", **options):
    return GymnasiumEnvironment(f"{MODULE}:{name}-v0", **options)


def play(environment, actions, seed=0):
    """Return all that is seen in an episode, and what came of each action."""
    seen, outcomes = [environment.begin(seed)], []
    for action in actions:
        shown, *outcome = environment.step(action)
        seen.append(shown)
        outcomes.append(outcome)
    return np.stack(seen), outcomes


@pytest.fixture
def lives(monkeypatch):
    """How many walks were made, and how many of them are closed."""
    counts, make = Counter(), Walk.__init__

    def counting(self, **options):
        counts["made"] += 1
        if counts["made"] == counts["fails"]:
            raise RuntimeError("no place to walk")
        make(self, **options)

    monkeypatch.setattr(Walk, "__init__", counting)
    monkeypatch.setattr(Walk, "close", lambda self: counts.update(["closed"]))
    return counts


def test_an_environment_that_is_refused_is_closed(lives, monkeypatch):
    monkeypatch.setattr(Walk, "action_space", spaces.Text(5))
    with pytest.raises(ValueError, match="Text"):
        walk()
    assert (lives["made"], lives["closed"]) == (1, 1)


def test_environments_that_were_made_before_one_that_fails_are_closed(lives):
    lives["fails"] = 3
    with pytest.raises(RuntimeError, match="no place to walk"):
        DiscreteEnvironments(task("Walk"), range(4))
    assert lives["closed"] == 2


class TestOne:
    def test_an_episode_follows_from_its_seed_and_actions(self):
        first, second = (play(walk(), [LEFT] * 5, seed=3) for _ in range(2))
        np.testing.assert_array_equal(first[0], second[0])
        assert first[1] == second[1]
        assert not np.array_equal(play(walk(), [LEFT] * 5, seed=4)[0], first[0])

    def test_the_goal_is_an_end_and_not_a_limit(self):
        _, outcomes = play(walk(), [RIGHT] * LENGTH)
        *_, (reward, terminated, truncated, success) = outcomes[: next(i for i, o in enumerate(outcomes) if o[1]) + 1]
        assert (reward, terminated, truncated, success) == (1.0, True, False, 1)

    def test_a_time_limit_is_no_end(self):
        _, outcomes = play(walk(), [LEFT] * 20)
        assert [outcome[2] for outcome in outcomes] == [False] * 19 + [True]
        assert not any(outcome[1] for outcome in outcomes)

    def test_the_goal_at_the_time_limit_is_an_end_alone(self, monkeypatch):
        environment = walk()
        environment.begin(0)
        monkeypatch.setattr(environment._world, "step", lambda action: (np.zeros(2), 1.0, True, True, {"success": 1}))
        assert environment.step(RIGHT)[1:] == (1.0, True, False, 1)

    def test_success_is_what_the_environment_says(self):
        assert play(walk(), [LEFT])[1][0][3] == 0
        assert play(walk("QuietWalk"), [LEFT])[1][0][3] == -1

    def test_an_action_is_played_for_some_steps_until_the_end(self):
        once, _ = play(walk(), [RIGHT] * 4, seed=1)
        twice, _ = play(walk(action_repeat=2), [RIGHT] * 2, seed=1)
        np.testing.assert_array_equal(twice, once[::2])
        _, outcomes = play(walk(action_repeat=30), [RIGHT], seed=1)
        assert outcomes == [[1.0, True, False, 1]]

    def test_actions_of_numbers_reach_the_bounds_of_the_environment(self):
        seen, _ = play(walk("Steered"), [np.array([-1.0]), np.array([0.9])])
        assert seen.dtype == np.float32

    def test_images_are_squares_where_actions_are_numbers(self):
        assert play(walk("SteeredImage", image_size=32), [np.zeros(1)])[0].shape == (2, 3, 32, 32)
        assert play(walk("Image"), [LEFT])[0].shape == (2, 12, 14, 3)

    def test_what_is_rendered_is_seen_in_the_other_family(self):
        seen, _ = play(walk(family="gymnasium-pixels"), [RIGHT] * 3)
        assert seen.shape == (4, 84, 84, 3)
        assert (seen.astype(int).sum((1, 2, 3)) > 0).all()
        assert not np.array_equal(seen[0], seen[3])

    @pytest.mark.parametrize(
        ("told", "said"),
        [
            ((np.array([np.nan, 0]), 0.0), "shows numbers that are not finite: "),
            ((np.zeros(2), np.inf), "gave a reward of inf"),
        ],
    )
    def test_numbers_that_are_not_finite_are_refused(self, monkeypatch, told, said):
        environment = walk()
        environment.begin(0)
        monkeypatch.setattr(environment._world, "step", lambda action: (*told, False, False, {}))
        with pytest.raises(ValueError, match=f"{task('Walk')} {said}"):
            environment.step(LEFT)

    def test_what_is_random_by_itself_is_found_out(self):
        assert is_deterministic(walk())
        assert is_deterministic(walk("Steered"))
        assert not is_deterministic(walk("Noisy"))


class TestDiscrete:
    def test_is_a_batch_of_environments_with_seeded_episodes(self):
        batch = DiscreteEnvironments(task("Walk"), [0, 1])
        assert isinstance(batch, Environments)
        assert isinstance(batch, SeededEpisodes)

    def test_every_episode_has_a_seed_of_its_own(self):
        batch, alone = DiscreteEnvironments(task("Walk"), [5, 9]), walk()
        shown = batch.reset()
        for place, seed in enumerate((5, 9)):
            np.testing.assert_array_equal(shown[place], alone.begin(episode_seed(seed, 0)))
        for _ in range(20):
            batch.send(np.array([LEFT, LEFT]))
            step = batch.receive()
        assert step.truncated.tolist() == [True, True]
        assert step.terminated.tolist() == [False, False]
        for place, seed in enumerate((5, 9)):
            np.testing.assert_array_equal(step.observations[place], alone.begin(episode_seed(seed, 1)))
            play(alone, [LEFT] * 20, seed=episode_seed(seed, 0))
        assert not np.array_equal(step.observations, step.next_observations)

    def test_what_an_action_led_to_is_not_what_is_shown_next(self):
        batch = DiscreteEnvironments(task("Walk"), [0])
        batch.reset()
        while True:
            batch.send(np.array([RIGHT]))
            step = batch.receive()
            if step.ended[0]:
                break
            np.testing.assert_array_equal(step.observations, step.next_observations)
        assert step.next_observations[0, 0] == LENGTH
        assert step.observations[0, 0] < LENGTH
        assert (step.success.tolist(), step.success_reported.tolist()) == ([True], [True])
        assert batch.progress().tolist() == [[1, 0]]

    @pytest.mark.parametrize("steps", [0, 7, 20, 33])
    def test_goes_back_to_where_it_was_by_the_actions_of_the_present_episodes(self, steps):
        batch, again = (DiscreteEnvironments(task("Walk"), [3, 4, 5]) for _ in range(2))
        actions = np.random.default_rng(0).integers(2, size=(3, steps))
        shown = batch.reset()
        for column in actions.T:
            batch.send(column)
            shown = batch.receive().observations
        np.testing.assert_array_equal(again.restore(batch.progress(), actions), shown)
        for column in np.random.default_rng(1).integers(2, size=(30, 3)):
            for each in (batch, again):
                each.send(column)
            mine, theirs = batch.receive(), again.receive()
            for one, other in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(batch.progress(), again.progress())

    def test_an_episode_that_ends_too_soon_is_not_deterministic(self):
        batch = DiscreteEnvironments(task("Walk"), [0])
        with pytest.raises(RuntimeError, match=r"Walk-v0: an episode .* after 20 of 25 steps .* is not deter"):
            batch.restore(np.array([[0, 25]]), np.zeros((1, 25), dtype=np.int64))

    def test_a_failure_names_the_environment(self):
        batch = DiscreteEnvironments(task("Broken"), [0, 1])
        batch.reset()
        for _ in range(39):
            batch.send(np.array([LEFT, LEFT]))
            batch.receive()
        batch.send(np.array([LEFT, LEFT]))
        with pytest.raises(RuntimeError, match=rf"environment 0 \({task('Broken')}\) failed: KeyError: .*is gone"):
            batch.receive()
        with pytest.raises(RuntimeError, match=r"receive\(\) without send\(\)"):
            batch.receive()

    def test_environments_of_several_tasks_are_refused(self):
        with pytest.raises(ValueError, match="environments must be of one task, got gymnasium/Acrobot-v1, gym"):
            make_environments(["gymnasium/CartPole-v1", "gymnasium/Acrobot-v1"], Making(seeds=[0, 1]))


class TestContinuous:
    def test_states_are_simulated_here_and_images_elsewhere(self):
        states = make_environments([task("Steered")] * 2, Making(threads=2))
        assert isinstance(states, ContinuousEnvironments)
        assert states.reset([0, 1]).shape == (2, 2)
        assert states.most_steps == 20
        images = make_environments([task("SteeredImage")], Making(image_size=24, action_repeat=2))
        assert type(states._simulators) is not type(images._simulators)
        assert images.most_steps == 10
        shown = images.reset([3])
        images.send(np.ones((1, 1), dtype=np.float32))
        step = images.receive()
        expected = play(walk("SteeredImage", image_size=24, action_repeat=2), [np.ones(1)], seed=3)
        np.testing.assert_array_equal(np.stack([shown[0], step.next_observations[0]]), expected[0])
        images.close()

    def test_success_is_told_where_it_is_said(self):
        batch = make_environments([task("Steered")], Making())
        batch.reset([0])
        batch.send(np.ones((1, 1), dtype=np.float32))
        step = batch.receive()
        assert (step.success.tolist(), step.success_reported.tolist()) == ([False], [True])
        silent = make_environments(["gymnasium/Pendulum-v1"], Making())
        silent.reset([0])
        silent.send(np.ones((1, 1), dtype=np.float32))
        step = silent.receive()
        assert (step.success.tolist(), step.success_reported.tolist()) == ([False], [False])

    def test_images_of_many_channels_are_refused(self):
        import gymnasium

        class Layers(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(0, 255, (20, 20, 5), np.uint8)
            action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

        gymnasium.register("Layers-v0", entry_point=Layers)
        with pytest.raises(ValueError, match=r"gymnasium/Layers-v0: images of 5 channels are not .*: 1 or 3 are"):
            GymnasiumEnvironment("Layers-v0")
