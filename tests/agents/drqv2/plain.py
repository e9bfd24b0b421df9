"""DrQ-v2 in plain PyTorch, which the agent is held against."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional

from vcse.estimators import kth_neighbor_distance, state_entropy_reward, value_conditional_reward
from vcse.nets.random_shift import PAD


class UnitLength(nn.Module):
    """Divide by the Euclidean norm."""

    def forward(self, hidden):
        return hidden / hidden.square().sum(-1, keepdim=True).sqrt()


class PlainDrQv2:
    """The learner in plain PyTorch, written from the description of the algorithm."""

    def __init__(self, agent, config):
        self.config = config
        self.encoder = copy.deepcopy(agent.encoder)
        head = self.head(agent.actor.head.layers, 0)
        if config.actor_normalization:
            head.insert(len(head) - 1, UnitLength())
        self.pre_activation = nn.Sequential(copy.deepcopy(agent.actor.trunk), head)
        self.actor = nn.Sequential(self.pre_activation, nn.Tanh())
        self.critic = self.twins(agent.critic.trunk, agent.critic.head.layers)
        self.targets = copy.deepcopy(self.critic)
        self.extrinsic = self.extrinsic_targets = self.curiosity = None
        if agent.extrinsic_critic is not None:
            self.extrinsic = self.twins(agent.extrinsic_critic.trunk, agent.extrinsic_critic.head.layers)
            self.extrinsic_targets = copy.deepcopy(self.extrinsic)
        if agent.curiosity is not None:
            self.curiosity = copy.deepcopy(agent.curiosity)
        networks = {
            "encoder": self.encoder,
            "actor": self.actor,
            "critic": self.critic,
            "extrinsic": self.extrinsic,
            "curiosity": self.curiosity,
        }
        self.networks = {name: network for name, network in networks.items() if network is not None}
        self.adams = {
            name: torch.optim.Adam(network.parameters(), lr=config.learning_rate)
            for name, network in self.networks.items()
        }
        self.bonuses = 0  # that were computed so far
        self.gradients = {}  # of each network's last step
        self.reward_scale = 1.0
        self.reward_sum = self.reward_weight = 0.0

    @staticmethod
    def head(layers, row):
        """Build a network of PyTorch's own layers with the parameters of one row of a stack."""
        linears = []
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            linear = nn.Linear(*weight.shape[1:])
            linear.weight.data, linear.bias.data = weight[row].detach().T.clone(), bias[row].detach().clone()
            linears += [linear, nn.ReLU()]
        return nn.Sequential(*linears[:-1])

    def twins(self, trunk, layers):
        return nn.ModuleList([copy.deepcopy(trunk), self.head(layers, 0), self.head(layers, 1)])

    @staticmethod
    def both(critic, features, actions):
        trunk, *heads = critic
        inputs = torch.cat((trunk(features), actions), -1)
        return torch.stack([head(inputs)[:, 0] for head in heads])

    def lower(self, critic, features, actions):
        return self.both(critic, features, actions).min(0).values

    @staticmethod
    def augmented(images, shifts):
        """Pad by repeating the border, and cut out."""
        padded = functional.pad(images.float(), [PAD] * 4, mode="replicate").to(torch.uint8)
        side = images.shape[-1]
        cut = [
            image[:, row : row + side, column : column + side]
            for image, (row, column) in zip(padded, shifts.tolist(), strict=True)
        ]
        return torch.stack(cut)

    def noisy(self, features, noise, deviation):
        """Clipped noise on the mean; what is cut off at the border has the gradient of what is not."""
        action = self.actor(features) + (deviation * noise).clamp(-0.3, 0.3)
        with torch.no_grad():
            too_much = action - action.clamp(-1 + 1e-6, 1 - 1e-6)
        return action - too_much

    def bonus(self, features, rewards):
        """Compute the release's reward of each state, from the features of the curiosity module."""
        name, k = self.config.bonus.name, self.config.bonus.k
        if name == "none":
            return torch.zeros(len(features))
        self.bonuses += 1
        known = self.curiosity.trunk(features)
        match name:
            case "se":
                reward = state_entropy_reward(known, k=k, reading="release-drqv2")
                return reward / (reward.mean() + 1 / self.bonuses)  # the release's wrong running mean
            case "se-matched":
                return torch.log(2 * kth_neighbor_distance(known, k=k, self_in_k=True) + 1e-5)
            case "rcse":
                condition = rewards
            case "vcse":
                critic = self.extrinsic_targets if self.config.value_critic == "target" else self.extrinsic
                condition = self.lower(critic, features, self.actor(features))
        standard = (condition - condition.mean()) / (condition.var(correction=0) + 1e-5).sqrt()
        return value_conditional_reward(known, standard, k=k, reading="release-drqv2")

    def normalized(self, rewards, first_rewards, discounts):
        """Return n-step returns as the settings divide and centre them, and what they are divided by."""
        kind, gamma, later = self.config.reward_normalization, self.config.discount, discounts
        if kind == "none":
            return rewards, 1.0
        sized = rewards if kind == "n_step_mean" else first_rewards
        self.reward_scale = 0.99 * self.reward_scale + 0.01 * sized.abs().mean().item()
        scale = self.reward_scale + 1e-8
        if kind == "centered":
            self.reward_sum = 0.99 * self.reward_sum + 0.01 * first_rewards.mean().item()
            self.reward_weight = 0.99 * self.reward_weight + 0.01
            # What every step loses, for as long as the return is, and for ever where the task is over.
            steps = torch.where(later > 0, later.log() / math.log(gamma), math.inf)
            rewards = rewards - self.reward_sum / self.reward_weight * (1 - gamma**steps) / (1 - gamma)
        return rewards / scale, scale

    def update(self, batch, noise, shifts, step):
        config, size = self.config, self.config.batch_size
        first, last, steps = config.action_noise
        deviation = first + (last - first) * min(step / steps, 1)
        beta = config.beta * (1 - config.beta_decay) ** step if config.bonus.name != "none" else 0.0
        actions, discounts = batch.actions[:size], batch.discounts[:size]
        rewards, scale = self.normalized(batch.rewards[:size], batch.first_rewards[:size], discounts)
        first_rewards = batch.first_rewards / scale

        now = self.augmented(batch.observations, shifts[0])
        with_gradient = self.encoder(now[:size])
        seen = with_gradient.detach()
        with torch.no_grad():
            next_observations = self.encoder(self.augmented(batch.next_observations[:size], shifts[1][:size]))

        curiosity_loss = torch.zeros(())
        if self.curiosity is not None:
            after = next_observations
            if config.curiosity_pair == "one-step":
                with torch.no_grad():
                    after = self.encoder(self.augmented(batch.one_step_observations[:size], shifts[2][:size]))
            here, there = self.curiosity.trunk(seen), self.curiosity.trunk(after)
            guess = self.curiosity.forward_net(torch.cat((here, actions), -1))
            action_guess = self.curiosity.inverse_net(torch.cat((here, there), -1))
            curiosity_loss = (there - guess).square().sum(-1).sqrt().mean()
            curiosity_loss = curiosity_loss + (actions - action_guess).square().sum(-1).sqrt().mean()
            self.step(curiosity_loss, "curiosity")

        with torch.no_grad():
            everyone = torch.cat((seen, self.encoder(now[size:]))) if len(now) > size else seen
            paid = rewards + beta * self.bonus(everyone, first_rewards)[:size]
            if config.return_injection == "every_step":
                for images, their_rewards, their_discounts in zip(*batch.between, strict=True):
                    later = self.encoder(self.augmented(images[:size], shifts[0][:size]))
                    paid = paid + their_discounts[:size] * beta * self.bonus(later, their_rewards[:size] / scale)
            value = self.lower(self.targets, next_observations, self.noisy(next_observations, noise[0], deviation))
            target = paid + discounts * value
            if self.extrinsic is not None:
                value = self.lower(
                    self.extrinsic_targets, next_observations, self.noisy(next_observations, noise[1], deviation)
                )
                extrinsic_target = rewards + discounts * value

        judged = self.both(self.critic, with_gradient, actions)
        critic_loss = sum((each - target).square().mean() for each in judged)
        self.step(critic_loss, "critic", "encoder")

        extrinsic_loss = torch.zeros(())
        if self.extrinsic is not None:
            guesses = self.both(self.extrinsic, seen, actions)
            extrinsic_loss = sum((each - extrinsic_target).square().mean() for each in guesses)
            self.step(extrinsic_loss, "extrinsic")

        saturated_share = (self.actor(seen).abs() > 0.99).float().mean()
        actor_loss = -self.lower(self.critic, seen, self.noisy(seen, noise[2], deviation)).mean()
        actor_loss = actor_loss + config.pre_activation_penalty * self.pre_activation(seen).square().mean()
        self.step(actor_loss, "actor")

        for slow, fast in ((self.targets, self.critic), (self.extrinsic_targets, self.extrinsic)):
            for mine, theirs in zip(slow.parameters(), fast.parameters(), strict=True) if slow is not None else ():
                mine.data += config.target_rate * (theirs.data - mine.data)
        return {
            "batch_reward": batch.rewards[:size].mean(),
            "critic_loss": critic_loss,
            "extrinsic_critic_loss": extrinsic_loss,
            "critic_mean": judged.mean(),
            "actor_loss": actor_loss,
            "curiosity_loss": curiosity_loss,
            "action_noise": torch.tensor(deviation),
            "beta": torch.tensor(beta),
            "reward_scale": torch.tensor(self.reward_scale),
            "saturated_share": saturated_share,
        }

    def step(self, loss, *names):
        for network in self.networks.values():
            network.zero_grad()
        loss.backward()
        for name in names:
            self.gradients[name] = [each.grad.clone() for each in self.networks[name].parameters()]
            self.adams[name].step()


def of_head(layers, row):
    """Return one row of a stack as PyTorch's own layers have it."""
    return [each[row].T if each.ndim == 3 else each[row] for each in layers]


def gradients_of(agent):
    """Return the gradients of an agent's last update in the order of the plain networks."""

    def of(parameters):
        return [each.grad.cpu() for each in parameters]

    actor, critic = of(agent.actor.head.layers), of(agent.critic.head.layers)
    return {
        "encoder": of(agent.encoder.parameters()),
        "actor": [*of(agent.actor.trunk.parameters()), *of_head(actor, 0)],
        "critic": [*of(agent.critic.trunk.parameters()), *of_head(critic, 0), *of_head(critic, 1)],
    }
