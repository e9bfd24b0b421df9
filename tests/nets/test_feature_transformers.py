import torch

from vcse.nets.feature_transformers import FeatureDecoder, FeatureEncoder
from vcse.nets.transformers import grid_positions


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def disturbed(net):
    for number, parameter in enumerate(net.parameters()):  # biases begin at 0, where nothing shows them
        parameter.data += 0.05 * random(*parameter.shape, seed=number)
    return net


def encoder():
    return disturbed(FeatureEncoder(3, 6, torch.Generator().manual_seed(1), dimensions=8, blocks=2, heads=2))


def decoder():
    return disturbed(FeatureDecoder(3, 5, 6, torch.Generator().manual_seed(2), dimensions=8, blocks=2, heads=2))


def positions():
    return grid_positions(3, 8)


def test_the_encoder_is_the_mean_of_transformed_tokens():
    net, tokens = encoder(), random(4, 10, 6)
    found = net(tokens)
    for image in range(4):
        embedded = [net.embedding(token) + place for token, place in zip(tokens[image], positions(), strict=True)]
        expected = sum(net.transformer(torch.stack(embedded)[None])[0]) / 10
        torch.testing.assert_close(found[image], expected, rtol=1e-5, atol=1e-5)


def test_the_decoder_predicts_the_tokens_after_the_first():
    net, features = decoder(), random(4, 5)
    found = net(features)
    assert found.shape == (4, 10, 6)
    for image in range(4):
        masks = [net.mask_token + place for place in positions()]
        decoded = net.transformer(torch.stack([net.embedding(features[image]), *masks])[None])[0]
        expected = torch.stack([net.output(each) for each in decoded[1:]])
        torch.testing.assert_close(found[image], expected, rtol=1e-5, atol=1e-5)


def block(dimensions):
    attention = (dimensions + 1) * 3 * dimensions + (dimensions + 1) * dimensions
    perceptron = (dimensions + 1) * 4 * dimensions + (4 * dimensions + 1) * dimensions
    return attention + perceptron + 2 * 2 * dimensions


def test_both_have_the_parameters_of_their_layers_at_full_size():
    generator, sizes = torch.Generator().manual_seed(0), {"dimensions": 128, "blocks": 2, "heads": 4}
    nets = FeatureEncoder(8, 256, generator, **sizes), FeatureDecoder(8, 2048, 256, generator, **sizes)
    found = [sum(each.numel() for each in net.parameters()) for net in nets]
    transformer = 2 * block(128) + 2 * 128
    in_encoder = 256 * 128 + 128 + transformer
    in_decoder = 2048 * 128 + 128 + 128 + transformer + 128 * 256 + 256
    assert found == [in_encoder, in_decoder]


def test_predicted_tokens_are_float32_under_autocast():
    net, features = decoder(), random(4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        found = net(features)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, net(features), rtol=0.05, atol=0.05)


def test_nothing_is_read_back_from_the_device():
    tokens = torch.empty(2, 10, 6, device="meta")
    assert encoder().to("meta")(tokens).shape == (2, 8)
    decoder().to("meta")(torch.empty(2, 5, device="meta")).sum().backward()
