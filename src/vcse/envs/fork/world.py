"""The fork as a table: its cells, where each move leads, and what each cell pays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from vcse.envs.interface import Observations, Step

# Rows and columns of the corridor, which bends every two cells: no move that is right at one end is right all along.
PATH = ((0, 1), (0, 2), (-1, 2), (-2, 2), (-2, 3), (-2, 4), (-1, 4), (0, 4), (0, 5), (0, 6), (-1, 6), (-2, 6))
CORRIDOR = len(PATH)
EPISODE_STEPS = 64
# Each step. A standard deviation of the recommended bonus is 0.02: it can lead away from the end, but not for long.
END_PAYS = 1 / 8
# Side of a cell in the coordinates that are observed. Neighbouring cells are then 0.18 apart in features, which are the
# coordinates over the root of 2, and opposite ends of a map 1 to 7; standardised values are 1 apart on average, and
# less within a cell or two. So it is now the position and now the value that makes the distance to a neighbour.
CELL_SIZE = 0.25
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns: north, east, south, west
# Cells of the room over cells of the corridor, and the room's rows and columns.
ROOMS = {1: (3, 4), 4: (6, 8), 16: (12, 16), 64: (24, 32)}
FIRSTS = (1, 6, 12)  # the first cell of the corridor that pays


@dataclass(frozen=True)
class ForkMap:
    """One map: the fork is the origin, the room lies west of it and the corridor east.

    Args:
        room: Its rows and columns.
        first: The first cell of the corridor that pays.
    """

    room: tuple[int, int]
    first: int

    @cached_property
    def cells(self) -> Int[np.ndarray, "c 2"]:
        """Row and column of every cell: those of the corridor with the fork before them, then those of the room."""
        rows, columns = self.room
        room = [(row, -column) for row in range(-(rows // 2), rows - rows // 2) for column in range(1, columns + 1)]
        return np.array([(0, 0), *PATH, *room])

    @cached_property
    def next_cells(self) -> Int[np.ndarray, "c 4"]:
        """Where each move leads from each cell; into a wall, nowhere."""
        numbers = {tuple(cell): number for number, cell in enumerate(self.cells.tolist())}
        return np.array(
            [
                [numbers.get((row + down, column + right), number) for down, right in MOVES]
                for (row, column), number in numbers.items()
            ]
        )

    @cached_property
    def rewards(self) -> Float[np.ndarray, " c"]:
        """The reward of a step into each cell.

        The i-th cell of the corridor pays i / 12 of what its end pays, and cells before the first that pays nothing.
        """
        rewards = np.zeros(len(self.cells), dtype=np.float32)
        paying = np.arange(self.first, CORRIDOR + 1)
        rewards[paying] = END_PAYS * paying / CORRIDOR
        return rewards

    @property
    def pays_only_the_end(self) -> bool:
        """Whether no cell but the last of the corridor pays."""
        return self.first == CORRIDOR


TASKS = {f"ratio{ratio}-first{first}": ForkMap(room, first) for ratio, room in ROOMS.items() for first in FIRSTS}


class Fork:
    """A batch of environments of one task, all of which move at once.

    Episodes begin at the fork and have a fixed length, which nothing but the time limit ends. To reach the end of the
    corridor is success; the agent may stay there, and is paid for it.

    Args:
        name: The task, without its family.
        count: How many environments.

    Example:
        >>> import numpy as np
        >>> from vcse.envs.fork import Fork
        >>> environments = Fork("ratio16-first6", 2)
        >>> environments.reset().tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        >>> environments.send(np.array([1, 3]))  # east into the corridor, west into the room
        >>> environments.receive().observations.tolist()
        [[0.0, 0.25], [0.0, -0.25]]
    """

    most_steps = EPISODE_STEPS
    observation_shape = (2,)
    actions = len(MOVES)

    def __init__(self, name: str, count: int) -> None:
        self.map, self.count = TASKS[name], count
        self._shown = (CELL_SIZE * self.map.cells).astype(np.float32)
        self.reset()

    def reset(self, seeds: Sequence[int | None] | None = None) -> Observations:
        """Begin episodes at the fork."""
        del seeds  # nothing is random
        self._places: Int[np.ndarray, " n"] = np.zeros(self.count, dtype=np.int64)
        self._steps = 0  # of the present episodes, which begin and end together
        return self._observations

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Move every agent."""
        self._places = self.map.next_cells[self._places, actions]
        self._steps += 1

    def receive(self) -> Step:
        """Return where the moves led, and begin new episodes where the time is over."""
        next_observations, places = self._observations, self._places
        is_over = self._steps == EPISODE_STEPS
        shown = self.reset() if is_over else next_observations
        return Step(
            shown,
            next_observations,
            self.map.rewards[places],
            terminated=np.zeros(self.count, dtype=np.bool_),
            truncated=np.full(self.count, is_over),
            success=places == CORRIDOR,
        )

    def close(self) -> None:
        """Free nothing: nothing is held."""

    @property
    def place(self) -> int:
        """The cell in which the first agent is."""
        return int(self._places[0])

    @property
    def _observations(self) -> Observations:
        shown: Observations = self._shown[self._places]
        return shown
