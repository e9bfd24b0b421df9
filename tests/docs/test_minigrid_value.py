"""The pre-registration says what the catalogue runs."""

from pathlib import Path

import pytest

from vcse.estimators import CONDITIONAL_READINGS
from vcse.studies.catalog import study
from vcse.studies.study import Claim, narrowed, run_configs

ENTRY = study("minigrid-value")
PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "minigrid-value.md").read_text().splitlines()
NOTHING = "–"


def row_of_arm(config, explanation):
    settings, choice = config.settings, config.settings.bonus
    has_offset = choice.name in ("vcse", "se-matched")
    offset = choice.log_offset or CONDITIONAL_READINGS["release-a2c"].log_offset
    cells = [
        f"`{config.method}`",
        explanation,
        f"`{choice.name}`" if choice.pays else NOTHING,
        choice.scaling if choice.pays else NOTHING,
        f"{offset:g}" if has_offset else NOTHING,
        f"{settings.beta:g}" if choice.pays else NOTHING,
        settings.injection if choice.pays or settings.step_cost else NOTHING,
        f"{settings.step_cost:g}",
        settings.values if choice.needs_values else NOTHING,
    ]
    return f"| {' | '.join(cells)} |"


def rows_below(heading):
    """Return the rows of a table, without its two first lines, by how its first begins."""
    [begin] = [place for place, line in enumerate(PAGE) if line.startswith(heading)]
    end = next(place for place in range(begin, len(PAGE)) if not PAGE[place].startswith("|"))
    return PAGE[begin + 2 : end]


def test_the_table_of_arms_is_that_of_the_catalogue():
    explanations = {method.name: method.explanation for method in ENTRY.methods}
    configs = run_configs(narrowed(ENTRY, seeds=1, tasks=["LavaGapS7"]))
    assert rows_below("| arm |") == [row_of_arm(config, explanations[config.method]) for config in configs]


def test_the_table_of_tasks_and_the_budget_are_those_of_the_catalogue():
    assert rows_below("| task |") == [f"| `{task.name}` | {task.frames:,} |" for task in ENTRY.tasks]
    runs = len(ENTRY.tasks) * ENTRY.runs_per_task
    frames = sum(config.frames for config in run_configs(ENTRY))
    told = f"12 x 6 x {ENTRY.seeds} = {runs:,} runs, {frames:,} frames"
    assert any(told in line for line in PAGE)
    last = ENTRY.first_seed + ENTRY.seeds - 1
    assert any(f"the {ENTRY.seeds} seeds {ENTRY.first_seed} to {last}" in line for line in PAGE)


@pytest.mark.parametrize("claim", ENTRY.claims, ids=lambda claim: claim.says)
def test_every_claim_is_on_the_page(claim):
    assert isinstance(claim, Claim)
    named = [line for line in PAGE if f"`{claim.better}`" in line and f"`{claim.than}`" in line]
    assert named


def test_the_two_blocks_are_the_seeds_of_the_study():
    commands = [line.split() for line in PAGE if line.startswith("vcse study run minigrid-value")]
    blocks = [range(int(words[5]), int(words[5]) + int(words[7])) for words in commands]
    assert [words[4] for words in commands] == ["--first-seed"] * 2
    first = ENTRY.first_seed
    assert [seed for block in blocks for seed in block] == list(range(first, first + ENTRY.seeds))
