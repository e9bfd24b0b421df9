import pytest
import torch
from torch.distributions import Categorical
from torch.distributions import kl_divergence as divergence_of
from torch.nn.functional import elu

from vcse.nets.rssm import RSSM, State, kl_divergence, kl_loss, straight_through_sample

ACTION, EMBEDDING, SIZE, HIDDEN, VARIABLES, CLASSES = 2, 5, 6, 7, 3, 4
LARGEST = 1 - 2**-24  # below 1, in float32


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed))


def rssm(action_size=ACTION, action_inputs=4):
    net = RSSM(
        action_size,
        EMBEDDING,
        generator(1),
        deterministic=SIZE,
        hidden=HIDDEN,
        variables=VARIABLES,
        classes=CLASSES,
        action_inputs=action_inputs,
    )
    for number, parameter in enumerate(net.parameters()):  # biases and the norm are of no effect where they begin
        parameter.data += 0.3 * random(*parameter.shape, seed=number)
    return net


def some_state(count, seed=0):
    logits = random(count, VARIABLES, CLASSES, seed=seed)
    return State(random(count, SIZE, seed=seed + 1).tanh(), logits.softmax(-1), logits)


def given(count, steps, seed=0):
    """Return embeddings, actions and uniforms of sequences."""
    uniforms = torch.rand(count, steps, VARIABLES, generator=generator(seed + 2))
    return random(count, steps, EMBEDDING, seed=seed), random(count, steps, ACTION, seed=seed + 1), uniforms


def plain_sample(logits, uniforms):
    sample = torch.zeros_like(logits)
    for variable, row in enumerate(logits.softmax(-1).tolist()):
        total, chosen = 0.0, 0
        for number, probability in enumerate(row):
            chosen = number
            total += probability
            if uniforms[variable] < total:
                break
        sample[variable, chosen] = 1
    return sample


def joined(split, first, second):
    weight = torch.cat((split.first_weight, split.second_weight), 1)
    return weight @ torch.cat((first, second)) + split.bias


def plain_deterministic(net, deterministic, stochastic, action):
    padded = torch.cat((action, torch.zeros(net.inputs.second_weight.shape[1] - len(action))))
    inputs = joined(net.inputs, stochastic.flatten(), padded)
    gates = net.gru.gates.weight @ torch.cat((inputs, deterministic)) + net.gru.gates.bias
    gates = (gates - gates.mean()) / (gates.var(unbiased=False) + 1e-3).sqrt()
    gates = gates * net.gru.norm.weight + net.gru.norm.bias
    reset, candidate, update = gates[:SIZE], gates[SIZE : 2 * SIZE], gates[2 * SIZE :]
    reset, update = 1 / (1 + (-reset).exp()), 1 / (1 + (1 - update).exp())
    return update * (reset * candidate).tanh() + (1 - update) * deterministic


def plain_prior(net, deterministic):
    return net.prior_output(elu(net.prior_hidden(deterministic))).view(VARIABLES, CLASSES)


def plain_posterior(net, deterministic, embedding):
    hidden = elu(joined(net.posterior_hidden, deterministic, embedding))
    return net.posterior_output(hidden).view(VARIABLES, CLASSES)


def test_imagined_states_are_those_of_a_plain_loop():
    net, state = rssm(), some_state(3)
    _, actions, uniforms = (each[:, 0] for each in given(3, 1))
    found = net.imagine(state, actions, uniforms)
    for row in range(3):
        deterministic = plain_deterministic(net, state.deterministic[row], state.stochastic[row], actions[row])
        logits = plain_prior(net, deterministic)
        torch.testing.assert_close(found.deterministic[row], deterministic, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.logits[row], logits, rtol=1e-5, atol=1e-5)
        assert torch.equal(found.stochastic[row], plain_sample(logits, uniforms[row]))


def test_observed_states_are_those_of_a_plain_loop():
    net, state = rssm(), some_state(3)
    embeddings, actions, uniforms = (each[:, 0] for each in given(3, 1))
    found, prior = net.observe(state, actions, embeddings, torch.tensor([False, True, False]), uniforms)
    for row in range(3):
        before = (state.deterministic[row], state.stochastic[row], actions[row])
        if row == 1:
            before = [torch.zeros_like(each) for each in before]
        deterministic = plain_deterministic(net, *before)
        logits = plain_posterior(net, deterministic, embeddings[row])
        torch.testing.assert_close(found.deterministic[row], deterministic, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.logits[row], logits, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(prior[row], plain_prior(net, deterministic), rtol=1e-5, atol=1e-5)
        assert torch.equal(found.stochastic[row], plain_sample(logits, uniforms[row]))


def sequence_with_gradients(net, run):
    state, prior = run()
    weights = [random(*each.shape, seed=number) for number, each in enumerate((*state, prior))]
    loss = sum((each * weight).sum() for each, weight in zip((*state, prior), weights, strict=True))
    return (*state, prior), torch.autograd.grad(loss, list(net.parameters()))


def test_a_sequence_is_step_after_step_and_has_its_gradients():
    net, (embeddings, actions, uniforms) = rssm(), given(4, 6)
    is_first = torch.rand(4, 6, generator=generator(9)) < 0.3
    assert is_first[:, 1:].any()

    def stepped():
        state, states, priors = net.initial(4, "cpu"), [], []
        for t in range(6):
            state, prior = net.observe(state, actions[:, t], embeddings[:, t], is_first[:, t], uniforms[:, t])
            states.append(state)
            priors.append(prior)
        return State(*(torch.stack(each, 1) for each in zip(*states, strict=True))), torch.stack(priors, 1)

    found, gradients = sequence_with_gradients(
        net, lambda: net.observe_sequence(embeddings, actions, is_first, uniforms)
    )
    expected, expected_gradients = sequence_with_gradients(net, stepped)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-4)


def test_where_an_episode_begins_nothing_is_known_of_what_was_before():
    net, (embeddings, actions, uniforms) = rssm(), given(2, 6)
    begins = torch.zeros(2, 6, dtype=torch.bool)
    begins[0, 3] = True
    state, prior = net.observe_sequence(embeddings, actions, begins, uniforms)
    other_actions = actions.clone()
    other_actions[:, 3] = 0
    later, later_prior = net.observe_sequence(
        embeddings[:, 3:], other_actions[:, 3:], torch.zeros(2, 3, dtype=torch.bool), uniforms[:, 3:]
    )
    for found, alone in zip((*state, prior), (*later, later_prior), strict=True):
        torch.testing.assert_close(found[0, 3:], alone[0], rtol=1e-5, atol=1e-5)
    assert not torch.isclose(state.deterministic[1, 3:], later.deterministic[1]).all()


def test_a_beginning_forgets_even_what_is_no_number():
    net, (embeddings, actions, uniforms) = rssm(), (each[:, 0] for each in given(2, 1))
    broken = State(*(torch.full_like(each, torch.nan) for each in some_state(2)))
    first = torch.ones(2, dtype=torch.bool)
    found, prior = net.observe(broken, torch.full_like(actions, torch.nan), embeddings, first, uniforms)
    expected, expected_prior = net.observe(net.initial(2, "cpu"), torch.zeros(2, 2), embeddings, ~first, uniforms)
    torch.testing.assert_close((*found, prior), (*expected, expected_prior))


@pytest.mark.parametrize(("action_inputs", "columns"), [(4, 4), (1, 2)])
def test_actions_are_padded_with_zeros(action_inputs, columns):
    net, state = rssm(action_inputs=action_inputs), some_state(3)
    assert net.inputs.second_weight.shape == (HIDDEN, columns)
    _, actions, uniforms = (each[:, 0] for each in given(3, 1))
    found = net.imagine(state, actions, uniforms)
    wide = rssm(action_size=columns, action_inputs=columns)
    padded = torch.cat((actions, torch.zeros(3, columns - ACTION)), -1)
    torch.testing.assert_close(tuple(found), tuple(wide.imagine(state, padded, uniforms)))


def test_states_begin_with_zeros_and_features_are_the_sample_then_the_state_of_the_gru():
    net = rssm()
    assert all(each.shape[0] == 3 and not each.any() for each in net.initial(3, "cpu"))
    state = some_state(3)
    expected = torch.cat((state.stochastic.reshape(3, -1), state.deterministic), -1)
    assert torch.equal(state.features, expected)
    assert torch.equal(State(*(each[:, None] for each in state)).features[:, 0], expected)


def test_has_the_parameters_of_its_layers_at_full_size():
    net = RSSM(4, 128, generator())
    inputs = (1024 + 50) * 1024 + 1024
    gru = (1024 + 1024) * 3072 + 3072 + 2 * 3072
    prior = 2 * (1024 * 1024 + 1024)
    posterior = (1024 + 128) * 1024 + 1024 + 1024 * 1024 + 1024
    assert sum(each.numel() for each in net.parameters()) == inputs + gru + prior + posterior


def test_layers_of_two_inputs_begin_as_one():
    net = RSSM(4, 128, generator(), deterministic=64, hidden=64, variables=4, classes=4)
    for layer, inputs in ((net.inputs, 16 + 50), (net.posterior_hidden, 64 + 128)):
        bound = (6 / (inputs + 64)) ** 0.5
        for weight in (layer.first_weight, layer.second_weight):
            assert 0.95 * bound < weight.abs().max() <= bound
        assert not layer.bias.any()


def test_the_generator_alone_decides_on_the_weights():
    before = torch.random.get_rng_state()
    first, same, other = (RSSM(2, 3, generator(seed), deterministic=8, hidden=8).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["gru.gates.weight"], other["gru.gates.weight"])


def test_classes_are_sampled_as_often_as_their_probabilities_say():
    logits = random(1, 1, 5, seed=3) * 2
    uniforms = (torch.arange(10_000) + 0.5) / 10_000
    samples = straight_through_sample(logits.expand(10_000, 1, 5), uniforms[:, None])
    assert torch.equal(samples.sum(-1), torch.ones(10_000, 1))
    counts = samples.sum((0, 1))
    assert (counts - 10_000 * logits[0, 0].softmax(-1)).abs().max() <= 1.01


def test_no_class_is_sampled_that_has_no_probability():
    logits = torch.zeros(200, 1, 32)
    logits += 3 * random(200, 1, 32)
    logits[:, :, :2] = logits[:, :, -3:] = -200
    for uniform in (0.0, LARGEST, 1.0):  # sums of 27 probabilities end on either side of the last two
        samples = straight_through_sample(logits, torch.full((200, 1), uniform))
        assert torch.equal(samples.sum(-1), torch.ones(200, 1))
        place = samples.argmax(-1)
        assert 2 <= place.min() <= place.max() < 29


def test_the_gradient_of_a_sample_is_that_of_its_probabilities():
    logits = random(4, 3, 5).requires_grad_()
    weight, uniforms = random(4, 3, 5, seed=1), torch.rand(4, 3, generator=generator(2))
    sample = straight_through_sample(logits, uniforms)
    assert set(sample.unique().tolist()) == {0.0, 1.0}
    (found,) = torch.autograd.grad((sample * weight).sum(), logits)
    (expected,) = torch.autograd.grad((logits.softmax(-1) * weight).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_gradients_reach_the_actions_of_earlier_steps():
    net, state = rssm(), some_state(3)
    actions = random(3, ACTION).requires_grad_()
    uniforms = torch.rand(2, 3, VARIABLES, generator=generator(0))
    later = net.imagine(net.imagine(state, actions, uniforms[0]), torch.zeros(3, ACTION), uniforms[1])
    (gradient,) = torch.autograd.grad(later.features.sum(), actions)
    assert (gradient != 0).all()


def test_the_divergence_is_that_of_pytorchs_own_distributions():
    posterior, prior = random(4, 6, 3, 5, seed=1), random(4, 6, 3, 5, seed=2)
    expected = divergence_of(Categorical(logits=posterior), Categorical(logits=prior)).sum(-1)
    torch.testing.assert_close(kl_divergence(posterior, prior), expected)


def test_the_loss_moves_the_prior_more_than_the_posterior():
    posterior, prior = (random(4, 3, 5, seed=seed).requires_grad_() for seed in (1, 2))
    loss = kl_loss(posterior, prior, balance=0.8)
    divergence = kl_divergence(posterior, prior).mean()
    torch.testing.assert_close(loss, divergence)
    found = torch.autograd.grad(loss, (posterior, prior))
    of_posterior, of_prior = torch.autograd.grad(divergence, (posterior, prior))
    torch.testing.assert_close(found, (0.2 * of_posterior, 0.8 * of_prior))


def test_a_divergence_out_of_range_is_clipped_and_has_no_gradient():
    prior = torch.zeros(3, 1, 4)
    posterior = torch.tensor([[0.01, 0, 0, 0], [1.0, 0, 0, 0], [9.0, 0, 0, 0]])[:, None].requires_grad_()
    divergences = kl_divergence(posterior, prior)
    assert divergences[0] < 0.01 < divergences[1] < 1 < divergences[2]
    loss = kl_loss(posterior, prior, least=0.01, most=1.0)
    torch.testing.assert_close(loss, (0.01 + divergences[1] + 1) / 3)
    (gradient,) = torch.autograd.grad(loss, posterior)
    assert gradient.abs().sum((-2, -1)).bool().tolist() == [False, True, False]


def test_divergences_and_gradients_are_finite_where_probabilities_vanish():
    posterior = torch.tensor([[[300.0, 0, -300], [0, 0, 0]]]).requires_grad_()
    prior = torch.tensor([[[-300.0, 300, 0], [0, 500, 0]]]).requires_grad_()
    divergence = kl_divergence(posterior, prior).sum()
    assert divergence.isfinite()
    assert all(each.isfinite().all() for each in torch.autograd.grad(divergence, (posterior, prior)))


def test_states_and_divergences_are_float32_under_autocast():
    net, (embeddings, actions, uniforms) = rssm(), given(4, 3)
    is_first = torch.zeros(4, 3, dtype=torch.bool)
    expected, expected_prior = net.observe_sequence(embeddings, actions, is_first, uniforms)
    with torch.autocast("cpu", torch.bfloat16):
        state, prior = net.observe_sequence(embeddings.bfloat16(), actions, is_first, uniforms)
        imagined = net.imagine(State(*(each[:, -1] for each in state)), actions[:, 0], uniforms[:, 0])
        loss = kl_loss(state.logits, prior)
        rounded = kl_loss(state.logits.bfloat16(), prior.bfloat16())
    assert {each.dtype for each in (*state, prior, *imagined, loss, rounded)} == {torch.float32}
    torch.testing.assert_close(state.logits[:, 0], expected.logits[:, 0], rtol=0.05, atol=0.05)
    torch.testing.assert_close(prior[:, 0], expected_prior[:, 0], rtol=0.05, atol=0.05)
    torch.testing.assert_close(loss, kl_loss(state.logits, prior))


def test_nothing_is_read_back_from_the_device():
    net, (embeddings, actions, uniforms) = rssm().to("meta"), (each.to("meta") for each in given(4, 3))
    is_first = torch.zeros(4, 3, dtype=torch.bool, device="meta")
    state, prior = net.observe_sequence(embeddings, actions, is_first, uniforms)
    imagined = net.imagine(State(*(each[:, -1] for each in state)), actions[:, 0], uniforms[:, 0])
    (kl_loss(state.logits, prior) + imagined.features.mean()).backward()
    assert imagined.features.shape == (4, VARIABLES * CLASSES + SIZE)
