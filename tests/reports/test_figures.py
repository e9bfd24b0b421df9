import io
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from PIL import Image

from vcse.reports.figures import (
    METHOD_COLOURS,
    OTHER_COLOURS,
    THEMES,
    Drawn,
    Panel,
    learning_curves,
    method_colour,
    spread,
    to_png,
    visit_maps,
)


def make_line(*middle):
    middle = np.array(middle)
    runs = np.full(len(middle), 8)
    return Drawn(np.arange(1, len(middle) + 1) * 5000, runs, middle, middle - 0.1, middle + 0.1, middle, middle)


def contrast(one, other):
    """Of WCAG: 3 is asked of graphics and of large text."""
    lights = []
    for colour in (one, other):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        lights.append(0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05)
    return max(lights) / min(lights)


def test_every_method_can_be_seen_on_light_and_on_dark():
    colours = [*METHOD_COLOURS.values(), *OTHER_COLOURS]
    assert len(set(colours)) == len(colours)
    for colour, theme in itertools.product(colours, THEMES.values()):
        assert contrast(colour, theme.background) >= 3
    for theme in THEMES.values():
        assert contrast(theme.text, theme.background) >= 7
        assert contrast(theme.faint, theme.background) >= 4.5


def test_a_method_has_one_colour_whoever_else_is_there():
    assert method_colour("vcse", ["a", "vcse"]) == METHOD_COLOURS["vcse"]
    assert method_colour("b", ["none", "a", "b"]) == OTHER_COLOURS[1]
    one, other = {"mine": make_line(0.1, 0.2)}, {"other": make_line(0.1, 0.2), "mine": make_line(0.3, 0.4)}
    first, second = learning_curves([Panel("x/one", one), Panel("x/two", other)]).axes[:2]
    assert first.lines[0].get_color() == second.lines[1].get_color() == OTHER_COLOURS[0]


@pytest.mark.parametrize(
    ("middle", "points"),
    [((0.5,), [5000]), ((0.1, 0.2), []), ((0.1, np.nan, 0.2, 0.3), [5000]), ((np.nan, 0.1, np.nan), [10_000])],
)
def test_a_point_that_no_line_shows_has_a_mark(middle, points):
    (panel,) = learning_curves([Panel("minigrid/LavaGapS7", {"vcse": make_line(*middle)})]).axes
    marked = [line for line in panel.lines if line.get_marker() == "o"]
    assert [frame for line in marked for frame in line.get_xdata().tolist()] == points


def test_a_run_that_has_only_begun_can_be_drawn():
    begun = make_line(0.2)._replace(frames=np.array([0]))
    (panel,) = learning_curves([Panel("dmc-pixels/hopper_stand", {"vcse": begun})]).axes
    assert panel.get_xlim() == (0, 1)


def test_a_line_is_dotted_where_some_runs_have_ended():
    whole = make_line(0.1, 0.2, 0.3, 0.4)
    (panel,) = learning_curves([Panel("task", {"vcse": whole._replace(runs=np.array([8, 8, 8, 7]))})]).axes
    solid, dotted = panel.lines
    assert (solid.get_linestyle(), dotted.get_linestyle()) == ("-", ":")
    np.testing.assert_array_equal(solid.get_ydata(), [0.1, 0.2, 0.3, np.nan])
    np.testing.assert_array_equal(dotted.get_ydata(), [np.nan, np.nan, 0.3, 0.4])
    (band,) = panel.collections
    assert band.get_paths()[0].vertices[:, 0].max() == whole.frames[2]


def test_lines_bands_and_labels_show_the_numbers():
    lines = {"none": make_line(0.1, 0.12), "se": make_line(0.1, 0.13), "vcse": make_line(0.1, 0.9)}
    (panel,) = learning_curves([Panel("minigrid/LavaGapS7", lines)]).axes
    assert panel.get_title(loc="left") == "minigrid/LavaGapS7"
    for drawn, band, (method, line) in zip(panel.lines, panel.collections, lines.items(), strict=True):
        np.testing.assert_array_equal(drawn.get_xydata(), np.stack((line.frames, line.iqm), -1))
        assert drawn.get_color() == METHOD_COLOURS[method]
        edges = band.get_paths()[0].vertices[:, 1]
        assert (edges.min(), edges.max()) == (line.low.min(), line.high.max())
    assert [label.get_text() for label in panel.texts] == ["none  12%", "se  13%", "vcse  90%"]
    heights = [label.xyann[1] for label in panel.texts]
    assert heights[1] - heights[0] == pytest.approx(0.09)  # moved apart
    assert heights[2] == pytest.approx(0.9, abs=1e-5)
    assert [label.xy for label in panel.texts] == [(10_000, 0.12), (10_000, 0.13), (10_000, 0.9)]
    assert [label.arrow_patch is not None for label in panel.texts] == [True, True, False]  # led back to the lines


def test_runs_are_thin_lines_below_the_bands_and_count_for_the_scale():
    scores = np.array([[0.0, 0.1], [0.2, 0.7]])
    line = make_line(0.1, 0.4)._replace(scores=scores)
    for is_share, highest in ((True, 1), (False, 0.7)):
        (panel,) = learning_curves([Panel("task", {"vcse": line}, "returns", is_share)]).axes
        thin, band = panel.collections
        np.testing.assert_array_equal([each[:, 1] for each in thin.get_segments()], scores)
        assert thin.get_zorder() < band.get_zorder() < panel.lines[0].get_zorder()
        assert (thin.get_linewidth()[0] < 1, thin.get_alpha() < 0.5) == (True, True)
        assert panel.get_ylim()[1] == pytest.approx(1.02 * highest + 0.0, abs=0.005)


@pytest.mark.parametrize("methods", [2, 12])
@pytest.mark.parametrize("panels", [1, 2, 4])
def test_nothing_is_cut_off_and_labels_do_not_touch(panels, methods):
    lines = {f"a method of many words {number}": make_line(0.1, 1.0 - 0.01 * number) for number in range(methods)}
    label = "success rate over the last 100 training episodes"
    figure = learning_curves([Panel(f"minigrid/Task{number}", lines, label) for number in range(panels)])
    figure.draw_without_rendering()
    page = figure.bbox
    for panel in figure.axes:
        if panel.get_visible():
            boxes = [each.get_window_extent() for each in panel.texts]
            boxes += [panel.get_tightbbox()]
            assert all(
                page.x0 <= box.x0 and page.y0 <= box.y0 and box.x1 <= page.x1 and box.y1 <= page.y1 for box in boxes
            )
            bottoms = sorted(
                box.y0 for box in boxes[:methods]
            )  # boxes reach up to the line that a label is led back to
            font = panel.texts[0].get_fontsize() * figure.dpi / 72
            assert all(after - before >= font for before, after in itertools.pairwise(bottoms))
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert page.x0 <= box.x0 < box.x1 <= page.x1


def test_of_lines_that_end_alike_the_one_that_was_ahead_has_the_higher_label():
    lines = {"none": make_line(0.2, 1.0), "se": make_line(0.9, 1.0), "vcse": make_line(0.5, 1.0)}
    (panel,) = learning_curves([Panel("minigrid/LavaGapS7", lines)]).axes
    by_height = sorted(panel.texts, key=lambda label: -label.xyann[1])
    assert [label.get_text() for label in by_height] == ["se  100%", "vcse  100%", "none  100%"]


def test_where_names_do_not_fit_numbers_stand_for_them():
    names = [f"vcse-beta-{number}" for number in range(7)]
    figure = learning_curves([Panel("task", {name: make_line(0.1, 0.1 * n) for n, name in enumerate(names)})])
    assert [label.get_text() for label in figure.axes[0].texts] == list("1234567")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"{n}  {name}" for n, name in enumerate(names, 1)]


def test_that_nothing_ever_rises_above_0_is_said():
    zero = make_line(0.0, 0.0)._replace(low=np.zeros(2), high=np.zeros(2))
    for is_share, told in (
        (True, "0% in every run throughout training"),
        (False, "0 in every run throughout training"),
    ):
        (panel,) = learning_curves([Panel("task", {"vcse": zero, "none": zero}, is_share=is_share)]).axes
        assert told in [text.get_text() for text in panel.texts]
    (panel,) = learning_curves([Panel("task", {"vcse": zero, "none": make_line(0.0, 0.1)})]).axes
    assert len(panel.texts) == 2


def test_a_label_tells_the_last_number_that_is_known():
    (panel,) = learning_curves([Panel("task", {"vcse": make_line(0.2, 0.3, np.nan)})]).axes
    assert [label.get_text() for label in panel.texts] == ["vcse  30%"]


def test_panels_of_many_tasks():
    figure = learning_curves([Panel(f"task{number}", {"vcse": make_line(0.1, 0.2)}) for number in range(4)])
    assert [panel.get_visible() for panel in figure.axes] == [True] * 4 + [False] * 2


def test_a_figure_becomes_a_png_with_the_colour_of_its_page():
    with Image.open(io.BytesIO(to_png(learning_curves([Panel("task", {"vcse": make_line(0.1, 0.2)})]), 50))) as image:
        assert (image.format, image.size) == ("PNG", (350, 200))
    walls, beyond = make_room()
    visits = {"vcse": np.ones((2, 5, 5)) * ~walls}
    for theme, look in THEMES.items():
        figure = visit_maps(visits, walls, beyond, frames_per_snapshot=1, theme=theme)
        with Image.open(io.BytesIO(to_png(figure, 50))) as image:
            corner = image.convert("RGB").getpixel((0, 0))
        assert corner == tuple(round(255 * part) for part in to_rgb(look.background))


@given(st.lists(st.floats(0, 1), max_size=8))
def test_labels_never_touch_stay_inside_and_keep_their_order(places):
    moved = spread(places, 0.1)
    ordered = sorted(moved)
    assert all(after - before > 0.1 - 1e-9 for before, after in itertools.pairwise(ordered))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in moved)
    assert sorted(range(len(places)), key=lambda i: (places[i], i)) == sorted(range(len(moved)), key=lambda i: moved[i])


def test_labels_that_are_apart_stay_and_others_move_as_little_as_possible():
    assert spread([0.9, 0.1], 0.1) == [0.9, 0.1]
    assert spread([0.5, 0.5, 0.9], 0.1) == pytest.approx([0.45, 0.55, 0.9])
    assert spread([0.0, 0.0], 0.1) == pytest.approx([0.0, 0.1])
    assert spread([1.0, 0.95], 0.1) == pytest.approx([1.0, 0.9])


def make_room():
    """Return a room with a wall at x = 2 that opens at y = 3."""
    walls = np.zeros((5, 5), dtype=bool)
    walls[[0, -1]] = walls[:, [0, -1]] = walls[2] = True
    walls[2, 3] = False
    beyond = np.zeros((5, 5), dtype=bool)
    beyond[3, 1:4] = True
    return walls, beyond


def test_visits_are_drawn_as_shares_with_what_lies_beyond_the_wall():
    walls, beyond = make_room()
    se, vcse = np.zeros((2, 5, 5), dtype=np.int64), np.zeros((2, 5, 5), dtype=np.int64)
    se[0, 1, 1], se[0, 1, 3], se[1, 1, 1] = 30, 10, 5
    vcse[0, 1, 1], vcse[0, 3, 2] = 3, 1
    figure = visit_maps({"se": se, "vcse": vcse}, walls, beyond, frames_per_snapshot=10_000)
    panels = figure.axes[:4]
    assert [panel.get_xlabel() for panel in panels] == ["0% beyond", "0% beyond", "25% beyond", "0% beyond"]
    assert [panel.get_title() for panel in panels] == ["0 to 10K", "10K to 20K", "", ""]
    assert [panels[0].get_ylabel(), panels[2].get_ylabel()] == ["se", "vcse"]
    cells = panels[2].images[0].get_array()
    assert cells[2, 3] == 0.25  # at row y, column x
    assert np.array_equal(cells.mask, walls.T)
    limits = {panel.images[0].get_clim() for panel in panels}
    assert limits == {(0, 1)}  # one scale for all, up to the last snapshot of se, spent in one cell


def test_visits_that_do_not_fit_are_named(without_type_checks):
    walls, beyond = make_room()
    visits = np.ones((2, 5, 5)) * ~walls
    with pytest.raises(ValueError, match=r"visits of b must have the shape \(2, 5, 5\) of the others, got \(1, 5, 5\)"):
        visit_maps({"a": visits, "b": visits[:1]}, walls, beyond, frames_per_snapshot=1)
    on_wall = visits.astype(int)
    on_wall[:, 0, 0] = 1
    with pytest.raises(ValueError, match="visits of a has 2 visits on cells that are walls"):
        visit_maps({"a": on_wall}, walls, beyond, frames_per_snapshot=1)
