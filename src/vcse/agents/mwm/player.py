"""How trained policies of MWM are loaded and played, and what their world models imagine."""

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.special import ndtr

from vcse.agents.entry import Policies, Saved
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.networks import PolicyState
from vcse.agents.mwm.settings import MWMSettings
from vcse.agents.playing import ContinuousPlayer, Noise
from vcse.bonuses.registry import NO_BONUS
from vcse.envs.tasks import task_spec
from vcse.runs.checkpoint import fitting
from vcse.streams import numbers

PlayerState = tuple[PolicyState, Int[Tensor, " n"]]  # and the steps since its episode began


class MWMPlayer(ContinuousPlayer):
    """Plays in simulations, from images and what it remembers of those before; one learner each.

    Latent states are sampled in any case, the actions only where that is asked for, as the release does.
    """

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        """Return the run itself: it is loaded alone."""
        return (saved.path,)

    def load(self, group: Sequence[Saved], device: str) -> MWM:
        """Return an agent with the policy of a run."""
        [saved] = group
        settings = dataclasses.replace(MWMSettings.of(saved.config.settings), bonus=NO_BONUS)
        agent = MWM(MWMSpec(task_spec(saved.config.task).action_size), settings, saved.config.seed, device=device)
        with fitting(saved.path):
            agent.load_policy(saved.checkpoint.state["agent"])
        return agent

    def policy(self, agent: MWM, frame: int) -> Callable[[Tensor, Noise], Tensor]:
        """Return what chooses actions from images and its own memory, with the noise of a frame."""
        generator = numbers(agent.seed, "acting", frame)
        policy_state: PolicyState | None = None

        def act(images: Tensor, noise: Noise) -> Tensor:
            nonlocal policy_state
            [images] = images
            policy_state = agent.acting_policy.initial_state(len(images)) if policy_state is None else policy_state
            uniforms = generator.random((len(images), agent.config.variables))
            actions, policy_state = _act(agent, images, policy_state, uniforms, None if noise is None else noise[0])
            return actions[None]

        return act

    def first(
        self, policies: Policies, observations: Tensor, noise: Noise, state: PlayerState | None
    ) -> tuple[Tensor, PlayerState]:
        """Choose actions of the first policy, for any number of images, and return what it remembers."""
        agent: MWM = policies.agent
        count = len(observations)
        policy_state, steps = state or (agent.acting_policy.initial_state(count), torch.zeros(count, dtype=torch.int64))
        # By the step of its own episode, so that an environment's numbers do not depend on the others.
        uniforms = [numbers(agent.seed, "acting", int(step)).random(agent.config.variables) for step in steps]
        actions, policy_state = _act(agent, observations, policy_state, np.stack(uniforms), noise)
        return actions, (policy_state, steps + 1)


def _act(
    agent: MWM,
    images: UInt8[Tensor, "n 3 h w"],
    policy_state: PolicyState,
    uniforms: Float[np.ndarray, "n v"],
    noise: Float[Tensor, "n a"] | None,
) -> tuple[Float[Tensor, "n a"], PolicyState]:
    """Choose actions: those at the quantiles of standard normal noise, or their mean."""
    quantiles = None if noise is None else ndtr(noise)
    return agent.act(images, policy_state, torch.from_numpy(uniforms).float(), quantiles)


@torch.no_grad()
def imagine(
    policies: Policies, images: UInt8[np.ndarray, "t 3 s s"], actions: Float[np.ndarray, "t a"], context: int
) -> UInt8[np.ndarray, "t 3 s s"]:
    """Return what the world model of the first policy shows: images it was shown, and those it imagines after them.

    Args:
        policies: Of which the first is asked.
        images: Of one episode, one after the other.
        actions: That led to each.
        context: How many images the model is shown; all others follow from the actions alone.
    """
    agent: MWM = policies.agent
    policy = agent.acting_policy
    generator = numbers(agent.seed, "acting", 0)
    sampled = generator.random((len(images), 1, agent.config.variables), dtype=np.float32)
    uniforms, taken = (torch.from_numpy(each).to(agent.device) for each in (sampled, actions))
    state, features = policy.model.rssm.initial(1, agent.device), []
    is_first = torch.ones(1, dtype=torch.bool, device=agent.device)
    with policy.autocast():
        tokens = policy.autoencoder.features(torch.from_numpy(images[:context]).to(agent.device))
        embeddings = policy.model.encoder(tokens)
        for step, action in enumerate(taken):
            if step < context:
                seen = embeddings[step : step + 1]
                state, _ = policy.model.rssm.observe(state, action[None], seen, is_first & (step == 0), uniforms[step])
            else:
                state = policy.model.rssm.imagine(state, action[None], uniforms[step])
            features.append(state.features)
        shown = policy.autoencoder.images_of(policy.model.decoder(torch.cat(features)))
    images_shown: UInt8[np.ndarray, "t 3 s s"] = shown.cpu().numpy()
    return images_shown
