"""Random numbers of off-policy learners: of the actions, and of the updates, which transitions and the noise.

They depend on a run's seed and the number of the step or the update alone, and are sampled in blocks. Where a GPU
learns, those of updates are sampled by threads ahead of time: it would wait for them otherwise. NumPy fills arrays
without Python's lock.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vcse.replay.transitions import uniforms_for
from vcse.streams import numbers

BLOCK = 8  # updates whose numbers are sampled at once
ACTION_BLOCK = 1000  # steps


class ActionNoise(NamedTuple):
    """The numbers of one step, on the host."""

    actions: Float[Tensor, "l a"]  # uniform from -1 to 1, for those who do not follow a policy yet
    noise: Float[Tensor, "l a"]  # standard normal, for those who do


class ActionNoiseStream:
    """The numbers of all steps of a cohort.

    Args:
        seeds: Of the runs.
        action_size: Numbers of an action.
        device: Where policies choose. A GPU can copy the noise while the host continues.
    """

    def __init__(self, seeds: Sequence[int], action_size: int, device: torch.device) -> None:
        self.seeds = list(seeds)
        self.action_size = action_size
        self.device = device
        self._block = lru_cache(maxsize=1)(self._sample)  # the last one

    def of_step(self, step: int) -> ActionNoise:
        """Return the numbers of a step."""
        block, place = divmod(step, ACTION_BLOCK)
        actions, noise = self._block(block)
        return ActionNoise(actions[place], noise[place])

    def _sample(self, block: int) -> tuple[Float[Tensor, "t l a"], Float[Tensor, "t l a"]]:
        generators = [numbers(seed, "actions", block) for seed in self.seeds]
        shape = (ACTION_BLOCK, self.action_size)
        uniform = np.stack([each.random(shape, dtype=np.float32) for each in generators], 1)
        normal = np.stack([each.standard_normal(shape, dtype=np.float32) for each in generators], 1)
        noise = torch.from_numpy(normal)
        return torch.from_numpy(2 * uniform - 1), noise.pin_memory() if self.device.type == "cuda" else noise


class UpdateNoise(NamedTuple):
    """The numbers of one update."""

    uniforms: Float[Tensor, "l u"]  # that choose the transitions
    noise: Float[Tensor, "l samples n a"]  # standard normal


class UpdateNoiseStream:
    """The numbers of all updates of a cohort, to be asked for in order.

    Args:
        seeds: Of the runs.
        shape: Of the noise of one learner: samples, batch size, size of an action.
        device: Of the noise.
        threads: That sample ahead where the device is a GPU.
    """

    def __init__(self, seeds: Sequence[int], shape: tuple[int, int, int], device: torch.device, threads: int) -> None:
        self.seeds = list(seeds)
        self.device = device
        learners = len(self.seeds)
        self._block = -1
        self._device_memory = UpdateNoise(
            torch.zeros(BLOCK, learners, uniforms_for(shape[1]), dtype=torch.float64, device=device),
            torch.zeros(BLOCK, learners, *shape, device=device),
        )
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, list[Future[None]]] = (-1, [])
        if device.type == "cuda":
            self._pool = ThreadPoolExecutor(threads)
            self._host_memory = UpdateNoise(
                *(torch.zeros_like(each, device="cpu").pin_memory() for each in self._device_memory)
            )
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def of_update(self, update: int) -> UpdateNoise:
        """Return the numbers of an update, which the next block overwrites."""
        block, place = divmod(update, BLOCK)
        if block != self._block:
            self._block = block
            self._take(block)
        return UpdateNoise(self._device_memory.uniforms[place], self._device_memory.noise[place])

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _take(self, block: int) -> None:
        if self._pool is None:
            for learner in range(len(self.seeds)):
                self._fill(block, learner, self._device_memory)
            return
        if self._ahead[0] != block:
            self._fill_ahead(block)
        for each in self._ahead[1]:
            each.result()
        for device, host in zip(self._device_memory, self._host_memory, strict=True):
            device.copy_(host, non_blocking=True)
        self._copied.record()
        self._fill_ahead(block + 1)

    def _fill_ahead(self, block: int) -> None:
        assert self._pool is not None

        def fill(learner: int) -> None:
            self._copied.synchronize()  # what is overwritten here must have been copied
            self._fill(block, learner, self._host_memory)

        self._ahead = block, [self._pool.submit(fill, learner) for learner in range(len(self.seeds))]

    def _fill(self, block: int, learner: int, memory: UpdateNoise) -> None:
        generator = numbers(self.seeds[learner], "updates", block)
        for place in range(BLOCK):
            generator.random(out=memory.uniforms[place, learner].numpy())
            generator.standard_normal(out=memory.noise[place, learner].numpy(), dtype=np.float32)
