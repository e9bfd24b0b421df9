from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from play.remembering import RememberingPlayer, remembering_entry, remembering_policies

from vcse import agents
from vcse.agents import agent_entry
from vcse.envs import tasks
from vcse.envs.interface import Step, TaskSpec
from vcse.play import imagination
from vcse.play.imagination import (
    IMAGINED_COLOUR,
    LIGHT_DIFFERENCES,
    OBSERVED_COLOUR,
    Imagination,
    Played,
    contact_sheet,
    film_images,
    imagine,
    imagine_run,
    observed_episodes,
    starting_steps,
)

TASK = "dmc-pixels/hopper_stand"
SIDE = 8


class Brightening:
    """An environment whose images become brighter by the step, from 40 in the first episode and from 80 in the next."""

    count, most_steps = 1, 12

    def __init__(self, names, making):
        assert (names, making.image_size, making.action_repeat) == (["hopper_stand"], SIDE, 2)
        self.seeds, self.actions, self.closed = [], [], False
        self.buffer = np.zeros((1, 3, SIDE, SIDE), dtype=np.uint8)

    def reset(self, seeds=None):
        self.seeds += seeds
        self.steps = 0
        self.buffer[:] = 40 * len(self.seeds)
        return self.buffer

    def send(self, actions):
        self.actions.append(actions.tolist())
        self.steps += 1

    def receive(self):
        self.buffer += 1  # as those of a simulator in another process, whose memory is written to again
        over = np.array([self.steps == self.most_steps])
        return Step(self.buffer, self.buffer, np.zeros(1, dtype=np.float32), over & False, over)

    def close(self):
        self.closed = True


def shifted(policies, images, actions, context):
    """Imagine what happened, and after the context half of it, by as many values brighter as the actions sum to."""
    imagined = images.copy()
    imagined[context:] = images[context:] // 2 + actions.sum(dtype=np.uint8)
    return imagined


@pytest.fixture
def worlds(monkeypatch):
    """Put environments of a few pixels behind a task, and an agent that imagines; those that are made are kept."""
    made = []
    family = replace(
        tasks.family_of(TASK),
        make=lambda names, making: made.append(Brightening(names, making)) or made[-1],
        spec=lambda name: TaskSpec(24, action_size=2),
    )
    monkeypatch.setitem(tasks._FAMILIES, "dmc-pixels", family)
    entry = remembering_entry(imagine=shifted, image_size=SIDE, action_repeat=2)
    monkeypatch.setitem(agents._AGENTS, "remembering", entry)
    return made


def make_imagination(count=50, *, start=50, context=5, side=SIDE):
    happened = np.zeros((count, 3, side, side), dtype=np.uint8) + np.arange(count, dtype=np.uint8)[:, None, None, None]
    imagined = happened.copy()
    imagined[context:, 0] += 153  # a fifth of the range, averaged over colours
    return Imagination(2, start, context, happened, imagined)


def pixel(image, x, y):
    return "#{:02x}{:02x}{:02x}".format(*image.getpixel((x, y)))


def test_episodes_are_what_the_policy_observed_and_the_actions_that_led_there(worlds):
    episodes = list(observed_episodes(remembering_policies(), episodes=2, sampled=False, seed=3))
    [world] = worlds
    assert world.closed
    assert world.seeds == [int(seed) for seed in np.random.default_rng(3).integers(2**31 - 1, size=2)]
    for number, episode in enumerate(episodes, start=1):
        first = 40 * number
        assert episode.images[:, 2, 0, 0].tolist() == list(range(first, first + 13))
        assert episode.images.shape == (13, 3, SIDE, SIDE)
        # The policy says how many steps it remembers: its state is forgotten where an episode begins.
        assert episode.actions.tolist() == [[0, 0], *[[step, first + step - 1] for step in range(1, 13)]]
        assert episode.actions.dtype == np.float32
    assert world.actions == [[row] for episode in episodes for row in episode.actions[1:].tolist()]


def test_actions_are_sampled_where_it_is_asked_for(worlds):
    [episode] = observed_episodes(remembering_policies(), episodes=1, sampled=True, seed=3)
    assert episode.actions[1].tolist() == [101, 140]


def test_a_policy_that_sees_several_images_gets_the_first_for_those_before_it(worlds, monkeypatch):
    seen = []

    class Seeing(RememberingPlayer):
        def act(self, policies, observations, generator, state=None, episode_start=None):
            seen.append(observations[0, ::3, 0, 0].tolist())
            return np.zeros((1, 2)), None

    entry = replace(agent_entry("remembering"), stacked_images=3, player=Seeing())
    monkeypatch.setitem(agents._AGENTS, "remembering", entry)
    [episode] = observed_episodes(remembering_policies(), episodes=1, sampled=False, seed=3)
    assert seen[:4] == [[40, 40, 40], [40, 40, 41], [40, 41, 42], [41, 42, 43]]
    assert episode.images.shape == (13, 3, SIDE, SIDE)
    assert episode.actions.dtype == np.float32


@pytest.mark.parametrize(
    ("images", "length", "starts"),
    [
        (251, 50, [0, 50, 100, 150, 200]),
        (249, 50, [0, 50, 100, 150]),
        (501, 50, [0, 100, 200, 300, 400]),
        (350, 50, [0, 50, 100, 200, 250]),
        (50, 50, [0]),
        (20, 50, [0]),
    ],
)
def test_parts_follow_each_other_and_are_spread_where_they_are_too_many(images, length, starts):
    assert starting_steps(images, length) == starts


def test_each_part_is_imagined_from_its_own_context_and_actions(worlds):
    [episode] = observed_episodes(remembering_policies(), episodes=1, sampled=False, seed=3)
    before = episode.actions.copy()
    parts = imagine(remembering_policies(), episode, episode=4, context=2, horizon=3)
    assert [(part.episode, part.start, part.context) for part in parts] == [(4, 0, 2), (4, 5, 2)]
    for part in parts:
        expected = episode.images[part.start : part.start + 5]
        assert np.array_equal(part.happened, expected)
        assert np.array_equal(part.imagined[:2], expected[:2])
        led_here = episode.actions[part.start + 1 : part.start + 5].sum(
            dtype=np.uint8
        )  # what led to the first is hidden
        assert np.array_equal(part.imagined[2:], expected[2:] // 2 + led_here)
    assert np.array_equal(episode.actions, before)


def test_a_short_episode_is_imagined_to_its_end_and_needs_more_than_its_context(worlds):
    policies = remembering_policies()
    [episode] = observed_episodes(policies, episodes=1, sampled=False, seed=3)
    [part] = imagine(policies, episode, context=5, horizon=45)
    assert len(part.happened) == len(part.imagined) == 13
    with pytest.raises(ValueError, match="an episode must be longer than the context of 5, got 5 images"):
        imagine(policies, Played(episode.images[:5], episode.actions[:5]))


def test_differences_are_means_over_colours_as_shares_of_the_range():
    happened = np.zeros((2, 3, 2, 2), dtype=np.uint8)
    imagined = happened.copy()
    happened[1, :, 0, 0], imagined[1, 1, 0, 1] = (0, 255, 30), 51
    seen = Imagination(1, 0, 1, happened, imagined)
    np.testing.assert_allclose(seen.difference, [[[0, 0], [0, 0]], [[285 / 765, 51 / 765], [0, 0]]], rtol=1e-6)
    assert seen.prediction_error == pytest.approx((285 + 51) / 765 / 4)


def test_a_film_marks_what_the_model_observes_and_what_it_predicts():
    seen = make_imagination()
    images = list(film_images(seen, remembering_policies().configs[0], 2))
    assert len(images) == 50
    assert {image.size for image in images} == {(812, 382)}  # even sides, which films need
    side, top = 256, 92
    for step in (0, 4, 5, 49):
        left, middle, right = (12 + place * (side + 10) for place in range(3))
        is_observed = step < 5
        assert pixel(images[step], left + 3, top + 3) == f"#{step:02x}{step:02x}{step:02x}"
        assert pixel(images[step], middle + side - 1, top + side - 1) == (
            f"#{step:02x}{step:02x}{step:02x}" if is_observed else f"#{step + 153:02x}{step:02x}{step:02x}"
        )
        brightness = [sum(images[step].getpixel((right + 5, top + 5))), sum(images[0].getpixel((right + 5, top + 5)))]
        assert (brightness[0] > brightness[1]) != is_observed
        borders = [pixel(images[step], x - 3, top + 50) for x in (left, middle)]
        assert (borders[0] == OBSERVED_COLOUR, borders[1] == IMAGINED_COLOUR) == (is_observed, not is_observed)
    captions = {image.crop((0, 30, 812, 60)).tobytes() for image in images}
    assert len(captions) == 50  # each says its step


def test_the_progress_of_a_part_is_marked_below():
    images = list(film_images(make_imagination(), remembering_policies().configs[0], 2))
    for step in (0, 4, 5, 20, 49):
        cells = [pixel(images[step], 12 + round((place + 0.5) * 788 / 50), 366) for place in range(50)]
        assert cells[:5].count(OBSERVED_COLOUR) == min(step + 1, 5)
        assert cells[5:].count(IMAGINED_COLOUR) == max(0, step - 4)


def test_images_of_other_sizes_are_enlarged_by_whole_numbers():
    [image, *_] = film_images(make_imagination(6, side=84), remembering_policies().configs[0], 1)
    assert image.size == (2 * 12 + 2 * 10 + 3 * 252, 92 + 252 + 34)
    [image, *_] = film_images(make_imagination(6, side=300), remembering_policies().configs[0], 1)
    assert image.size == (2 * 12 + 2 * 10 + 3 * 300, 92 + 300 + 34)


def test_a_contact_sheet_has_a_column_every_five_steps_and_three_rows_for_each_part():
    shorter = make_imagination(30, start=100)
    sheet = contact_sheet([make_imagination(), shorter], remembering_policies().configs[0])
    side, label, head = 112, 108, 116
    steps = [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 49]
    block = 3 * (side + 3) + 18
    assert sheet.height == head + 2 * block
    for place, step in enumerate(steps):
        x = label + place * (side + 3) + (10 if step >= 5 else 0) + 5
        assert pixel(sheet, x, head - 12) == (OBSERVED_COLOUR if step < 5 else IMAGINED_COLOUR)
        rows = [pixel(sheet, x, head + row * (side + 3) + 5) for row in range(3)]
        assert rows[0] == f"#{step:02x}{step:02x}{step:02x}"
        assert rows[1] == (rows[0] if step < 5 else f"#{step + 153:02x}{step:02x}{step:02x}")
        assert (rows[2] == LIGHT_DIFFERENCES[0]) == (step < 5)
        below = pixel(sheet, x, head + block + 5)
        assert below == (rows[0] if step < 30 else "#ffffff")  # the second part is over


def test_a_run_becomes_a_film_and_a_sheet_beside_it(worlds, monkeypatch, tmp_path):
    policies = remembering_policies()
    monkeypatch.setattr(imagination, "read_config", lambda path: policies.configs[0])
    monkeypatch.setattr(imagination, "load_policies", lambda paths, device: [policies])
    found = imagine_run(tmp_path, tmp_path / "new" / "film.gif", episodes=2, seed=3, frames_per_second=10)
    assert [(each.episode, each.start, len(each.happened)) for each in found] == [(1, 0, 13), (2, 0, 13)]
    with Image.open(tmp_path / "new" / "film.gif") as film:
        shown_ms = []
        for place in range(film.n_frames):
            film.seek(place)
            shown_ms.append(film.info["duration"])
        assert film.size == (812, 382)
    assert shown_ms == 2 * [*[100] * 12, 1200]  # the end of each part stays
    with Image.open(tmp_path / "new" / "film.png") as sheet:
        assert sheet.height == 116 + 2 * (3 * 115 + 18)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 0}, "episodes must be at least 1, got 0"),
        ({"frames_per_second": 0}, "frames_per_second must be at least 1, got 0"),
    ],
)
def test_a_film_of_nothing_is_refused(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        imagine_run(tmp_path, tmp_path / "film.gif", **settings)


@pytest.mark.parametrize("wrong", [np.zeros((12, 3, SIDE, SIDE), dtype=np.uint8), np.zeros((13, 3, SIDE, SIDE))])
@pytest.mark.usefixtures("without_type_checks")
def test_images_of_another_shape_or_kind_are_refused(worlds, monkeypatch, wrong):
    policies = remembering_policies()
    [episode] = observed_episodes(policies, episodes=1, sampled=False, seed=3)
    entry = replace(agent_entry("remembering"), imagine=lambda *inputs: wrong)
    monkeypatch.setitem(agents._AGENTS, "remembering", entry)
    expected = rf"remembering must imagine uint8 images of shape \(13, 3, 8, 8\), got {wrong.dtype} of shape"
    with pytest.raises(ValueError, match=expected):
        imagine(policies, episode)


def test_an_agent_without_a_world_model_is_refused_and_those_with_one_are_named(worlds, monkeypatch):
    policies = remembering_policies()
    [episode] = observed_episodes(policies, episodes=1, sampled=False, seed=3)
    monkeypatch.setitem(agents._AGENTS, "dreaming", remembering_entry(imagine=shifted))
    monkeypatch.setitem(agents._AGENTS, "remembering", remembering_entry())
    with pytest.raises(
        ValueError, match=r"remembering has no world model that imagines; agents that have one: .*dreaming"
    ):
        imagine(policies, episode)
