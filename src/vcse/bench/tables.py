"""How what was measured is shown: a line for each row, and a table of all."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from vcse.bench import adapters, drqv2, estimator, minigrid, mwm, sac

Row = estimator.Row | minigrid.Row | sac.Row | drqv2.Row | mwm.Row | adapters.Row


_LINES: dict[type, str] = {
    adapters.Row: "{0.algorithm}, {0.task}: {0.times_plain:.2f} times plain, {0.frames_per_s:,.0f} frames/s",
    drqv2.Row: "{0.task}, {0.bonus}, {0.rendering}: {0.ms_per_update:,.4g} ms, {0.frames_per_s:,.0f} frames/s",
    mwm.Row: "{0.bonus}, {0.precision}: {0.ms_per_update:,.4g} ms, {0.frames_per_s:,.0f} frames/s",
    sac.Row: "{0.learners} learners of {0.hidden_units} units, {0.bonus}: {0.updates_per_s:,.4g} updates/s",
    estimator.Row: "N={0.n} d={0.d} k={0.k}: {0.ms:.3g} ms",
    minigrid.Row: "{0.learners} learners, {0.bonus}: {0.frames_per_s:,.0f} frames/s",
}


def line(row: Row) -> str:
    """Return the most important numbers of a row."""
    return _LINES[type(row)].format(row)


def _adapters_table(rows: Sequence[adapters.Row]) -> Table:
    title = f"Agents of {rows[0].library} with the bonus, on one core; explained variance of the task's returns"
    headings = ("algorithm", "task", "frames/s", "plain\nframes/s", "times\nplain", "explained", "own\nexplained")
    table = _empty(title, headings, words=(0, 1))
    for row in rows:
        table.add_row(
            *(row.algorithm, row.task, f"{row.frames_per_s:,.0f}", f"{row.plain_frames_per_s:,.0f}"),
            *(f"{row.times_plain:.2f}", f"{row.explained_variance:.2f}", f"{row.own_explained_variance:.2f}"),
        )
    return table


def _drqv2_table(rows: Sequence[drqv2.Row]) -> Table:
    title = f"DrQ-v2 on {rows[0].device}, drawn by {rows[0].drawn_by}: an update, and training"
    headings = ("task", "bonus", "rendering", "batch", "ms", "times\nplain", "frames/s", "waits", "acts", "learns")
    table = _empty(title, headings, words=(0, 1, 2), is_narrow=True)
    for row in rows:
        table.add_row(
            *(row.task.partition("/")[2], row.bonus, row.rendering, str(row.batch_size), f"{row.ms_per_update:,.4g}"),
            *(f"{row.times_plain:.2f}", f"{row.frames_per_s:,.0f}"),
            *_percent(row.share_env, row.share_act, row.share_update),
        )
    return table


def _mwm_table(rows: Sequence[mwm.Row]) -> Table:
    first = rows[0]
    title = (
        f"MWM, {first.sizes} size, on {first.device}, rendered by {first.rendered_by}: ms of an update, and training"
    )
    headings = ("bonus", "preci-\nsion", "auto-\nenc.", "model", "actor", "all", "times\nplain", "TFLOP", "of\npeak")
    table = _empty(title, (*headings, "frames\n/s", "waits", "acts", "learns"), words=(0, 1), is_narrow=True)
    for row in rows:
        parts = (row.ms_per_autoencoder_update, row.ms_per_model_update, row.ms_per_actor_critic_update)
        table.add_row(
            *(row.bonus, row.precision, *(f"{each:,.3g}" for each in (*parts, row.ms_per_update))),
            *(f"{row.times_plain:.2f}", f"{row.tflop_per_update:.2g}"),
            *(_percent(row.share_of_peak) if row.share_of_peak is not None else ["–"]),
            *(f"{row.frames_per_s:,.0f}", *_percent(row.share_env, row.share_act, row.share_update)),
        )
    return table


def _sac_table(rows: Sequence[sac.Row]) -> Table:
    title = f"SAC on {rows[0].device}: an update, with the shares of bonus and extrinsic critic, and training"
    headings = ("learners", "units", "bonus", "updates/s", "times\nplain", "bonus", "critic", "frames/s")
    table = _empty(title, (*headings, "waits", "acts", "learns"), words=(2,), is_narrow=True)
    for row in rows:
        table.add_row(
            *(str(row.learners), str(row.hidden_units), row.bonus, f"{row.updates_per_s:,.4g}"),
            *(f"{row.times_plain:.2f}", *_percent(row.share_bonus, row.share_extrinsic_critic)),
            *(f"{row.frames_per_s:,.4g}", *_percent(row.share_env, row.share_act, row.share_update)),
        )
    return table


def _minigrid_table(rows: Sequence[minigrid.Row]) -> Table:
    headings = ("learners", "bonus", "frames/s", "environments", "acting", "bonus", "rest of the update")
    table = _empty(f"Training A2C on MiniGrid, networks on {rows[0].device}", headings, words=(1, 5))
    for row in rows:
        shares = _percent(row.share_env, row.share_act, row.share_bonus, row.share_update)
        table.add_row(str(row.learners), row.bonus, f"{row.frames_per_s:,.0f}", *shares)
    return table


def _estimator_table(rows: Sequence[estimator.Row]) -> Table:
    title = f"VCSE reward on {rows[0].device}: this library, and the plain broadcast formula"
    table = _empty(title, ("N", "d", "k", "ms", "plain ms", "faster", "peak MiB", "plain MiB", "less"))
    for row in rows:
        faster = "" if row.naive_ms is None else f"{row.naive_ms / row.ms:.1f}x"
        less = "" if row.naive_peak_mib is None else f"{row.naive_peak_mib / max(row.peak_mib, 0.1):.0f}x"
        plain = "no room" if row.naive_ms is None else f"{row.naive_ms:.3g}"
        plain_peak = "" if row.naive_peak_mib is None else f"{row.naive_peak_mib:.0f}"
        shown = (f"{row.ms:.3g}", plain, faster, f"{row.peak_mib:.1f}", plain_peak, less)
        table.add_row(str(row.n), str(row.d), str(row.k), *shown)
    return table


def _empty(title: str, headings: Sequence[str], *, words: Sequence[int] = (), is_narrow: bool = False) -> Table:
    """Return a table without rows, whose columns have numbers but for those that have words."""
    table = Table(title=title, title_justify="left" if is_narrow else "center", box=None, pad_edge=False)
    table.padding = (0, 1 if is_narrow else 2, 0, 0)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number in words else "right")
    return table


def _percent(*shares: float) -> list[str]:
    return [f"{share:.0%}" for share in shares]


TABLES: dict[str, Callable[[Any], Table]] = {
    "adapters": _adapters_table,
    "estimator": _estimator_table,
    "minigrid": _minigrid_table,
    "sac": _sac_table,
    "drqv2": _drqv2_table,
    "mwm": _mwm_table,
}
