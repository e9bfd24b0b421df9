import pytest
from minigrid.minigrid_env import MiniGridEnv

from vcse.envs.minigrid.recording import record_grids


@pytest.fixture
def closed(monkeypatch):
    """The worlds that were closed."""
    worlds = []
    monkeypatch.setattr(MiniGridEnv, "close", lambda self: worlds.append(self))  # noqa: PLW0108 - to be bound
    return worlds


def test_the_world_is_closed_when_the_episodes_are_over(closed):
    moments = list(record_grids("Empty-5x5", lambda seen, generator: 2, episodes=2, seed=0))
    assert [moment.episode for moment in moments if moment.outcome] == [1, 2]
    assert len(closed) == 1


def test_the_world_is_closed_when_the_policy_fails_or_nobody_watches_any_more(closed):
    def fail(seen, generator):
        raise RuntimeError("no policy")

    with pytest.raises(RuntimeError, match="no policy"):
        list(record_grids("Empty-5x5", fail, episodes=1, seed=0))
    assert len(closed) == 1
    moments = record_grids("Empty-5x5", fail, episodes=1, seed=0)
    next(moments)
    moments.close()
    assert len(closed) == 2
