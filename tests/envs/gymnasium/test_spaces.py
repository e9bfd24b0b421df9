import types

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from vcse.envs.gymnasium.spaces import (
    ImageOf,
    acts_of,
    channels_of_three,
    rendered,
    shrunk,
    sight_of,
    sight_of_images,
)

DRAWN = np.random.default_rng(0)


def environment_of(observation_space=None, action_space=None):
    return types.SimpleNamespace(observation_space=observation_space, action_space=action_space, unwrapped=None)


def sight(space):
    return sight_of(environment_of(space), "gymnasium/Mine-v0")


def acts(space):
    return acts_of(environment_of(action_space=space), "gymnasium/Mine-v0")


class TestStates:
    def test_vectors_of_any_type_become_float32(self):
        for dtype in (np.float64, np.float32):
            found = sight(spaces.Box(-np.inf, np.inf, (2, 3), dtype))
            shown = found.convert(np.arange(6, dtype=dtype).reshape(2, 3) / 4)
            assert (found.kind, found.shape, found.dtype, shown.dtype) == ("state", (6,), np.float32, np.float32)
            assert shown.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]

    def test_whole_numbers_with_close_bounds_are_scaled_and_others_are_not(self):
        bytes_ = sight(spaces.Box(0, 255, (2,), np.uint8))
        assert bytes_.convert(np.array([0, 51], dtype=np.uint8)).tolist() == pytest.approx([0, 0.2])
        wide = sight(spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64))
        assert wide.convert(np.array([3, -4])).tolist() == [3, -4]

    def test_discrete_observations_become_one_hot(self):
        found = sight(spaces.Discrete(4, start=2))
        assert found.shape == (4,)
        assert found.convert(np.int64(3)).tolist() == [0, 1, 0, 0]
        assert sight(spaces.MultiDiscrete([2, 3])).convert(np.array([1, 2])).tolist() == [0, 1, 0, 0, 1]
        assert sight(spaces.MultiBinary(3)).convert(np.array([1, 0, 1], dtype=np.int8)).tolist() == [1, 0, 1]

    def test_dictionaries_and_tuples_become_one_vector(self):
        goal = spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "seen": spaces.Tuple([spaces.Discrete(2)])})
        shown = sight(goal).convert({"goal": np.array([0.5, -0.5], dtype=np.float32), "seen": (1,)})
        assert shown.tolist() == [0.5, -0.5, 0, 1]

    @pytest.mark.parametrize(
        ("space", "said"),
        [
            (spaces.Text(5), r"the observation space Text\(.*\) is not supported; Box, Discrete, "),
            (spaces.Sequence(spaces.Discrete(2)), r"Sequence\(.* is not supported; Box"),
            (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Text(5)}), "is not supported, because of Text"),
            (spaces.Box(-1, 1, (100, 50)), r"of 5,000 numbers is not supported; .* of up to 4,096 numbers"),
            (spaces.Box(0, 255, (4, 84, 84, 3), np.uint8), r"of 84,672 numbers is not supported; .*images"),
        ],
    )
    def test_what_cannot_be_a_vector_is_refused_in_one_line(self, space, said):
        with pytest.raises(ValueError, match=f"^gymnasium/Mine-v0: .*{said}") as refused:
            sight(space)
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 500


class TestImages:
    def test_bytes_are_left_as_they_are(self):
        found = sight(spaces.Box(0, 255, (64, 48, 3), np.uint8))
        image = DRAWN.integers(0, 256, (64, 48, 3)).astype(np.uint8)
        assert (found.kind, found.shape, found.dtype) == ("image", (64, 48, 3), np.uint8)
        np.testing.assert_array_equal(found.convert(image), image)

    def test_channels_that_come_first_come_last(self):
        found = sight(spaces.Box(0, 255, (4, 20, 30), np.uint8))
        image = DRAWN.integers(0, 256, (4, 20, 30)).astype(np.uint8)
        assert found.shape == (20, 30, 4)
        np.testing.assert_array_equal(found.convert(image), image.transpose(1, 2, 0))

    def test_grey_images_have_one_channel(self):
        found = sight(spaces.Box(0, 255, (20, 30), np.uint8))
        assert found.shape == (20, 30, 1)
        assert found.convert(np.full((20, 30), 7, dtype=np.uint8)).tolist() == [[[7]] * 30] * 20

    def test_other_bounds_are_scaled_to_bytes(self):
        image = ImageOf(spaces.Box(-1.0, 1.0, (8, 8, 3)))
        assert image(np.full((8, 8, 3), -1.0)).max() == 0
        assert image(np.full((8, 8, 3), 0.0)).tolist() == [[[128] * 3] * 8] * 8
        assert image(np.full((8, 8, 3), 1.0)).min() == 255
        codes = ImageOf(spaces.Box(0, 3, (8, 8, 3), np.int64))
        assert codes(np.full((8, 8, 3), 2))[0, 0].tolist() == [170] * 3

    def test_large_images_are_shrunk(self):
        found = sight(spaces.Box(0, 255, (210, 160, 3), np.uint8))
        assert found.shape == (84, 84, 3)
        shown = found.convert(np.full((210, 160, 3), 9, dtype=np.uint8))
        assert shown.shape == (84, 84, 3)
        assert (shown == 9).all()

    def test_a_smaller_image_is_the_mean_of_its_pixels(self):
        image = DRAWN.integers(0, 256, (8, 6, 2)).astype(np.uint8)
        expected = image.reshape(4, 2, 3, 2, 2).astype(np.float64).mean((1, 3))
        assert np.abs(shrunk(image, (4, 3)).astype(np.float64) - expected).max() <= 0.5

    def test_those_who_choose_the_size_get_three_channels_first(self):
        grey, colours = (DRAWN.integers(0, 256, (40, 40, count)).astype(np.uint8) for count in (1, 3))
        np.testing.assert_array_equal(channels_of_three(colours, 40), colours.transpose(2, 0, 1))
        assert (channels_of_three(grey, 40) == grey[..., 0]).all()
        assert channels_of_three(colours, 84).shape == (3, 84, 84)

    def test_the_image_of_a_dictionary_is_what_is_seen(self):
        image = spaces.Box(0, 255, (16, 16, 3), np.uint8)
        for key in ("image", "pixels"):
            found = sight(spaces.Dict({key: image, "mission": spaces.Text(9)}))
            assert (found.kind, found.shape) == ("image", (16, 16, 3))
            assert (found.convert({key: np.full((16, 16, 3), 5, dtype=np.uint8), "mission": "go"}) == 5).all()

    def test_few_numbers_and_numbers_without_bounds_are_no_images(self):
        assert sight(spaces.Box(0, 255, (5, 5, 3), np.uint8)).kind == "state"
        assert sight(spaces.Box(-np.inf, np.inf, (8, 8, 3))).kind == "state"

    def test_what_is_rendered_must_be_a_image(self):
        seen = sight_of_images(environment_of(), "gymnasium-pixels/Mine-v0")
        assert (seen.kind, seen.shape) == ("image", (84, 84, 3))
        assert seen.convert(np.zeros((400, 600, 3), dtype=np.uint8)).shape == (84, 84, 3)
        with pytest.raises(ValueError, match=r"gymnasium-pixels/Mine-v0: render\(\) must give .*, got NoneType"):
            seen.convert(None)
        with pytest.raises(ValueError, match=r"got \(4, 4\)"):
            rendered(np.zeros((4, 4)), "gymnasium/Mine-v0")


class TestGrids:
    @pytest.mark.parametrize("wrapper", ["none", "ImgObsWrapper"])
    def test_cells_of_minigrid_are_a_grid(self, wrapper):
        import minigrid.wrappers

        world = gymnasium.make("MiniGrid-Empty-6x6-v0", disable_env_checker=True)
        world = world if wrapper == "none" else getattr(minigrid.wrappers, wrapper)(world)
        found = sight_of(world, "gymnasium/MiniGrid-Empty-6x6-v0")
        shown = world.reset(seed=0)[0]
        assert (found.kind, found.shape, found.dtype) == ("grid", (7, 7, 3), np.uint8)
        np.testing.assert_array_equal(found.convert(shown), shown["image"] if wrapper == "none" else shown)

    def test_images_of_them_are_images(self):
        from minigrid.wrappers import RGBImgPartialObsWrapper

        world = RGBImgPartialObsWrapper(gymnasium.make("MiniGrid-Empty-6x6-v0", disable_env_checker=True))
        assert sight_of(world, "gymnasium/MiniGrid-Empty-6x6-v0").kind == "image"


class TestActions:
    def test_counted_actions_begin_where_the_space_does(self):
        found = acts(spaces.Discrete(3, start=-1))
        assert (found.count, found.size) == (3, 0)
        assert [found.convert(np.int64(action)) for action in range(3)] == [-1, 0, 1]

    def test_numbers_are_brought_to_the_bounds_of_a_box(self):
        space = spaces.Box(np.array([[-2, 0]], dtype=np.float32), np.array([[2, 10]], dtype=np.float32))
        found = acts(space)
        assert (found.count, found.size) == (0, 2)
        assert found.convert(np.array([-1.0, 1.0])).tolist() == [[-2, 10]]
        assert found.convert(np.array([0.5, -0.5])).tolist() == [[1, 2.5]]
        assert found.convert(np.array([-7.0, 7.0])).tolist() == [[-2, 10]]

    @pytest.mark.parametrize("seed", range(5))
    def test_every_action_is_in_the_space(self, seed):
        generator = np.random.default_rng(seed)
        low = generator.uniform(-1e3, 1e3, 3).astype(np.float32)
        space = spaces.Box(low, low + generator.random(3).astype(np.float32))
        for action in (-np.ones(3), np.ones(3), *generator.uniform(-1, 1, (50, 3))):
            assert space.contains(acts(space).convert(action))

    @pytest.mark.parametrize(
        ("space", "said"),
        [
            (
                spaces.MultiDiscrete([3, 3]),
                r"the action space MultiDiscrete\(\[3 3\]\) is not supported; supported are Discrete ",
            ),
            (spaces.Discrete(300), r"Discrete\(300\) is not supported; supported are Discrete of up to 256 actions"),
            (spaces.Box(-np.inf, np.inf, (2,)), "its bounds must be finite; gymnasium.wrappers.Transform"),
            (spaces.Box(0, 3, (2,), np.int64), r"Box\(0, 3, \(2,\), int64\) is not supported; "),
        ],
    )
    def test_what_cannot_be_done_is_refused(self, space, said):
        with pytest.raises(ValueError, match=f"^gymnasium/Mine-v0: .*{said}"):
            acts(space)
