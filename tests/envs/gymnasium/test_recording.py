import numpy as np
import pytest
from runs.small_gymnasium import MODULE

from vcse.envs.gymnasium.recording import record_environment
from vcse.envs.interface import Making


def record(name, choose, **options):
    return list(record_environment(name, choose, **{"episodes": 2, "seed": 0, "making": Making(), **options}))


def test_an_episode_is_seen_from_its_beginning_to_its_end():
    moments = record(f"{MODULE}:Walk-v0", lambda recent, generator: 1)
    ends = [moment for moment in moments if moment.outcome]
    assert [moment.episode for moment in ends] == [1, 2]
    assert {moment.outcome for moment in ends} == {"goal"}
    assert {moment.return_so_far for moment in ends} == {1.0}
    assert [moment.step for moment in moments if moment.episode == 1] == list(range(ends[0].step + 1))
    assert {moment.image.shape for moment in moments} == {(120, 240, 3)}  # tiny ones are enlarged


@pytest.mark.parametrize(("name", "action", "outcome"), [("Walk", 0, "out of time"), ("QuietWalk", 1, "over")])
def test_how_an_episode_ended_is_told(name, action, outcome):
    moments = record(f"{MODULE}:{name}-v0", lambda recent, generator: action, episodes=1)
    assert moments[-1].outcome == outcome


def test_the_policy_is_shown_the_last_observations_and_fast_environments_less_often():
    shown = []

    def choose(recent, generator):
        shown.append([each.shape for each in recent])
        return np.zeros(1, dtype=np.float32)

    moments = record("Pendulum-v1", choose, episodes=1, recent=3, making=Making(image_size=16, action_repeat=1))
    assert shown[0] == [(3,)] * 3
    assert len(shown) == 200
    assert len(moments) == 1 + 200 // 2  # 30 steps a second of the environment
    assert moments[0].image.shape == (250, 250, 3)  # 500 x 500 is much


def test_what_agents_with_continuous_actions_see_is_of_their_size():
    def choose(recent, generator):
        assert [each.shape for each in recent] == [(3, 32, 32)] * 2
        return np.ones(1, dtype=np.float32)

    making = Making(image_size=32, action_repeat=2)
    record(f"{MODULE}:SteeredImage-v0", choose, episodes=1, recent=2, making=making)
