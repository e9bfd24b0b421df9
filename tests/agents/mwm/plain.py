"""MWM in plain loops around its networks, which have tests of their own; the agent is held against it."""

import copy
import math

import torch

from vcse.nets.rssm import State
from vcse.nets.truncated_normal import mean_and_std, truncated_normal_entropy, truncated_normal_sample
from vcse.streams import numbers


class PlainAdam:
    """Adam with a bound of the gradient's norm, and weights that lose a share of themselves before each step."""

    def __init__(self, parameters, config, *, rate, all_decay=False):
        self.parameters, self.config, self.rate, self.all_decay = list(parameters), config, rate, all_decay
        self.means = [torch.zeros_like(each) for each in self.parameters]
        self.squares = [torch.zeros_like(each) for each in self.parameters]
        self.steps = 0

    def step(self, loss):
        gradients = torch.autograd.grad(loss, self.parameters, retain_graph=True)
        norm = math.sqrt(sum(float(each.square().sum()) for each in gradients))
        scale = min(1, self.config.most_gradient_norm / norm)
        self.steps += 1
        for place, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            bounded = scale * gradient
            self.means[place] = 0.9 * self.means[place] + 0.1 * bounded
            self.squares[place] = 0.999 * self.squares[place] + 0.001 * bounded**2
            mean = self.means[place] / (1 - 0.9**self.steps)
            square = self.squares[place] / (1 - 0.999**self.steps)
            if self.all_decay or parameter.ndim > 1:
                parameter.data *= 1 - self.config.weight_decay
            parameter.data -= self.rate * mean / (square.sqrt() + self.config.adam_epsilon)


class PlainMWM:
    """The learner, written from the description of the algorithm."""

    def __init__(self, agent, config):
        self.config, self.seed = config, agent.seed
        self.autoencoder, self.model, self.actor = map(copy.deepcopy, (agent.autoencoder, agent.model, agent.actor))
        self.critic, self.slow_critic = copy.deepcopy(agent.critic), copy.deepcopy(agent.critic)
        self.extrinsic, self.slow_extrinsic = (copy.deepcopy(agent.extrinsic_critic) for _ in range(2))
        self.intrinsic, self.projection = copy.deepcopy(agent.bonus_head), agent.projection.clone()
        self.autoencoder_adam = PlainAdam(self.autoencoder.parameters(), config, rate=0, all_decay=True)
        of_bonus = [] if self.intrinsic is None else self.intrinsic.parameters()
        self.model_adam = PlainAdam([*self.model.parameters(), *of_bonus], config, rate=config.model_learning_rate)
        self.actor_adam = PlainAdam(self.actor.parameters(), config, rate=config.learning_rate)
        self.critic_adam = PlainAdam(self.critic.parameters(), config, rate=config.learning_rate)
        if self.extrinsic is not None:
            self.extrinsic_adam = PlainAdam(self.extrinsic.parameters(), config, rate=config.learning_rate)
        self.reward_size = self.intrinsic_size = 1.0
        self.updates = self.autoencoder_updates = 0

    def uniforms(self, purpose, update):
        """Return what samples in an update, from the generator that is seeded for it."""
        generator = torch.Generator().manual_seed(int(numbers(self.seed, purpose, update).integers(2**62)))
        return lambda *shape: torch.rand(*shape, generator=generator)

    def update_autoencoder(self, batch):
        """Learn to see through the mask, with a rate that rises."""
        images, rewards = batch.images.flatten(0, 1), batch.rewards.flatten()
        uniforms = self.uniforms("autoencoder", self.autoencoder_updates)
        guess = self.autoencoder(images, uniforms(len(images), self.autoencoder.patches))
        total = 0.0
        means, stds = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        for image, patches in zip(images, guess.patches, strict=True):
            standard = (image.permute(1, 2, 0) / 255 - means) / stds
            side = len(standard) // 8
            for place, patch in enumerate(patches):
                top, left = 8 * (place // side), 8 * (place % side)
                total = total + (patch - standard[top : top + 8, left : left + 8].flatten()).square().mean()
        pixel_loss = total / guess.patches[..., 0].numel()
        reward_loss = (guess.rewards - symlog(rewards)).square().mean()
        self.autoencoder_updates += 1
        share = min(1, self.autoencoder_updates / self.config.warm_up_updates)
        self.autoencoder_adam.rate = self.config.autoencoder_learning_rate * share
        self.autoencoder_adam.step(pixel_loss + reward_loss)
        return {"autoencoder_loss": pixel_loss, "autoencoder_reward_loss": reward_loss}

    def update(self, batch):
        """Learn all else: world model, then critic of rewards alone, then actor, then critic of both."""
        config, uniforms = self.config, self.uniforms("latent states", self.updates)
        count, length = batch.rewards.shape
        states, metrics = self.learn_model(batch, uniforms(count, length, config.variables))
        state = State(*(torch.stack(part, 1).flatten(0, 1).detach() for part in zip(*states, strict=True)))

        features, entropies = [state.features], []
        for _ in range(config.horizon):
            mean, std = mean_and_std(self.actor(features[-1].detach()))
            entropies.append(truncated_normal_entropy(mean, std))
            action = truncated_normal_sample(mean, std, uniforms(*mean.shape))
            state = self.model.rssm.imagine(state, action, uniforms(len(mean), config.variables))
            features.append(state.features)

        rewards = [symexp(self.model.reward(each)) for each in features]
        size = torch.stack(rewards).abs().mean().item()
        self.reward_size = config.reward_momentum * self.reward_size + (1 - config.reward_momentum) * size
        rewards = [each / (self.reward_size + 1e-8) for each in rewards]
        both = rewards
        if self.intrinsic is not None:
            paid = [symexp(self.intrinsic(each)) for each in features]
            size = torch.stack(paid).abs().mean().item()
            self.intrinsic_size = config.reward_momentum * self.intrinsic_size + (1 - config.reward_momentum) * size
            both = [r + config.beta * p / (self.intrinsic_size + 1e-8) for r, p in zip(rewards, paid, strict=True)]
        returns = self.lambda_returns(both, [self.slow_critic(each) for each in features])

        extrinsic_loss = torch.zeros(())
        if self.extrinsic is not None:
            targets = self.lambda_returns(rewards, [self.slow_extrinsic(each) for each in features])
            extrinsic_loss, _ = self.critic_loss(self.extrinsic, features, targets)
            self.extrinsic_adam.step(extrinsic_loss)

        terms = []
        for step in range(config.horizon - 1):
            objective = returns[step + 1] + config.entropy_weight * entropies[step]
            terms.append(config.discount**step * objective)
        actor_loss = -torch.stack(terms).mean()
        self.actor_adam.step(actor_loss)
        critic_loss, critic_mean = self.critic_loss(self.critic, features, returns)
        self.critic_adam.step(critic_loss)

        if self.updates % config.target_updates == 0:
            self.slow_critic, self.slow_extrinsic = copy.deepcopy(self.critic), copy.deepcopy(self.extrinsic)
        self.updates += 1
        return metrics | {
            "critic_loss": critic_loss,
            "extrinsic_critic_loss": extrinsic_loss,
            "actor_loss": actor_loss,
            "critic_mean": critic_mean,
            "policy_entropy": torch.stack(entropies[:-1]).mean(),
            "reward_size": torch.tensor(self.reward_size),
            "intrinsic_size": torch.tensor(self.intrinsic_size),
        }

    def learn_model(self, batch, uniforms):
        """Learn latent states of sequences step by step, and return them."""
        model = self.model
        count, length = batch.rewards.shape
        tokens = self.autoencoder.features(batch.images.flatten(0, 1)).detach().unflatten(0, (count, length))
        state, states = model.rssm.initial(count, "cpu"), []
        feature_loss = divergence = reward_loss = 0.0
        for step in range(length):
            known = model.encoder(tokens[:, step])
            begins = batch.is_first[:, step]
            state, prior = model.rssm.observe(state, batch.actions[:, step], known, begins, uniforms[:, step])
            states.append(state)
            guess = model.decoder(state.features)
            for wrong in (guess - tokens[:, step]).flatten(0, 1):
                feature_loss = feature_loss + wrong.square().sum() / (count * length * tokens.shape[2])
            wrong = model.reward(state.features) - symlog(batch.rewards[:, step])
            reward_loss = reward_loss + wrong.square().sum() / (count * length)
            for mine, theirs in zip(state.logits, prior, strict=True):
                apart = 0.8 * kl(mine.detach(), theirs) + 0.2 * kl(mine, theirs.detach())
                divergence = divergence + apart.clamp(0.01, 100) / (count * length)

        intrinsic_loss = torch.zeros(())
        if self.intrinsic is not None:
            known = torch.stack([state.features for state in states], 1).flatten(0, 1).detach()
            paid = self.bonus(known)
            intrinsic_loss = (self.intrinsic(known) - symlog(paid)).square().mean()
        self.model_adam.step(feature_loss + divergence + reward_loss + intrinsic_loss)
        return states, {
            "batch_reward": batch.rewards.mean(),
            "feature_loss": feature_loss,
            "kl_loss": divergence,
            "reward_loss": reward_loss,
            "intrinsic_loss": intrinsic_loss,
        }

    @torch.no_grad()
    def bonus(self, features):
        """Return the release's value-conditional reward of each state among all others, pair by pair."""
        rounded = self.config.projection_precision == "float16"
        projected, values = features, self.slow_extrinsic(features)
        if rounded:
            projected, values = features.half().float(), values.half().float()
        projected = projected @ self.projection
        if rounded:
            projected = projected.half().float()
        values = (values - values.mean()) / (values.var(correction=0) + 1e-3).sqrt()
        count, k, paid = len(features), self.config.bonus.k, []
        for i in range(count):
            values_apart = [abs(float(values[i] - values[j])) for j in range(count)]
            apart = [max(float((projected[i] - projected[j]).norm()), values_apart[j]) for j in range(count)]
            radius = sorted(apart)[k - 1]  # the state itself is the first
            near = sum(each < radius for each in values_apart)
            of_count = torch.digamma(torch.tensor(near + 1.0)).item() / self.config.projection_size
            paid.append(of_count + math.log(2 * radius + 1e-4))
        return torch.tensor(paid)

    def lambda_returns(self, rewards, values):
        """Return what each imagined state but the last is worth, by what comes after it."""
        config, following, found = self.config, values[-1], []
        for step in reversed(range(config.horizon)):
            mixed = (1 - config.return_lambda) * values[step + 1] + config.return_lambda * following
            following = rewards[step] + config.discount * mixed
            found.insert(0, following)
        return found

    def critic_loss(self, critic, features, returns):
        """Return the loss of a critic on the way, each step of which counts less, and its mean value."""
        losses, values = [], []
        for step, target in enumerate(returns):
            values.append(critic(features[step].detach()))
            losses.append(self.config.discount**step * (values[-1] - target.detach()).square())
        return torch.stack(losses).mean(), torch.stack(values).mean()


def symlog(number):
    return number.sign() * torch.log(1 + number.abs())


def symexp(number):
    return number.sign() * (number.abs().exp() - 1)


def kl(posterior, prior):
    """Return the divergence of one state's logits, variable by variable."""
    total = 0.0
    for mine, theirs in zip(posterior, prior, strict=True):
        log_mine, log_theirs = mine - mine.logsumexp(0), theirs - theirs.logsumexp(0)
        total = total + (log_mine.exp() * (log_mine - log_theirs)).sum()
    return total
