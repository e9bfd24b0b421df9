import pytest
import torch

from vcse.nets.masked_autoencoder import PATCH, MaskedAutoencoder

MEANS, STDS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def autoencoder(image_size=32, seed=1, **options):
    sizes = {"dimensions": 16, "encoder_blocks": 2, "decoder_blocks": 1, "heads": 2, "convolutions": (4, 6, 8)}
    net = MaskedAutoencoder(image_size, generator(seed), **sizes | options)
    for number, parameter in enumerate(net.parameters()):  # biases begin at 0, where nothing shows them
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator(number))
    return net


def random_images(count=3, size=32, seed=0):
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator(seed))


def uniforms(count=3, patches=16, seed=0):
    return torch.rand(count, patches, generator=generator(seed))


def keeping(patches, kept):
    """Return the uniforms by which these patches are kept."""
    chosen = torch.full((1, patches), 0.9)
    chosen[0, list(kept)] = 0.1
    return chosen


def standardized(images):
    channels = [(images[:, c] / 255 - MEANS[c]) / STDS[c] for c in range(3)]
    return torch.stack(channels, 1)


def plain_tokens(net, image):
    """Return the tokens of one image with their positions, row by row."""
    hidden = standardized(image[None])
    for layer in net.convolutions:
        hidden = torch.nn.functional.conv2d(hidden, layer.weight, layer.bias, stride=2, padding=1).relu()
    kernel = net.embedding.weight[:, :, 0, 0]
    side = hidden.shape[-1]
    rows = [kernel @ hidden[0, :, y, x] + net.embedding.bias for y in range(side) for x in range(side)]
    return [row + position for row, position in zip(rows, net.positions[:-1], strict=True)]


def plain_reconstruction(net, image, chosen):
    """Return predicted pixels and reward of one image, token by token."""
    tokens = plain_tokens(net, image)
    kept = sorted(range(len(tokens)), key=lambda patch: chosen[patch].item())[: net.kept]
    encoded = net.encoder(torch.stack([net.class_token, *(tokens[patch] for patch in kept)])[None])[0]
    embedded = [net.decoder_embedding(each) for each in encoded]
    known = dict(zip(kept, embedded[1:], strict=True))
    seen = [known.get(patch, net.mask_token) + net.positions[patch] for patch in range(len(tokens))]
    decoded = net.decoder(torch.stack([embedded[0], *seen, net.mask_token + net.positions[-1]])[None])[0]
    pixels = torch.stack([net.pixel_output(each) for each in decoded[1:-1]])
    read = decoded[-1] if net.reads_reward == "token" else pixels[-1]
    return pixels, net.reward_output(read)[0]


@pytest.mark.parametrize("reads_reward", ["token", "pixels"])
def test_reconstructions_are_those_of_a_plain_loop(reads_reward):
    net, images, chosen = autoencoder(reads_reward=reads_reward), random_images(), uniforms()
    found = net(images, chosen)
    for image in range(3):
        pixels, reward = plain_reconstruction(net, images[image], chosen[image])
        torch.testing.assert_close(found.patches[image], pixels, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.rewards[image], reward, rtol=1e-4, atol=1e-5)


def test_features_are_of_all_patches_row_by_row_and_of_the_class_token_last():
    net, images = autoencoder(), random_images()
    found = net.features(images)
    assert found.shape == (3, net.tokens, 16)
    for image in range(3):
        first = net.encoder(torch.stack([net.class_token, *plain_tokens(net, images[image])])[None])[0]
        torch.testing.assert_close(found[image], torch.cat((first[1:], first[:1])), rtol=1e-4, atol=1e-5)


def test_losses_are_mean_squared_errors_of_all_pixels_and_of_the_symlog_of_rewards():
    net, images, chosen = autoencoder(), random_images(), uniforms()
    rewards = torch.tensor([0.0, 7.5, -2.0])
    pixel_loss, reward_loss = net.loss(images, rewards, chosen)
    found = net(images, chosen)
    errors = (found.patches - net.targets(images)).square()
    torch.testing.assert_close(pixel_loss, errors.sum() / (3 * 16 * 192))
    logarithms = torch.tensor([0.0, 8.5, -3.0]).abs().log() * torch.tensor([0.0, 1.0, -1.0])  # of 1 + |r|
    logarithms[0] = 0
    torch.testing.assert_close(reward_loss, (found.rewards - logarithms).square().mean())


def test_patches_that_are_masked_do_not_influence_what_is_predicted():
    net, images, chosen = autoencoder(), random_images(1), keeping(16, (0, 1, 4, 5))
    other = images.clone()
    other[:, :, 24:, :] ^= 255  # the last row of patches, beyond those next to a kept one
    other[:, :, :, 24:] ^= 255
    for found, expected in zip(net(other, chosen), net(images, chosen), strict=True):
        assert torch.equal(found, expected)
    other[:, :, :8, :8] ^= 255  # the first patch
    for found, expected in zip(net(other, chosen), net(images, chosen), strict=True):
        assert ((found - expected).abs() > 1e-4).float().mean() > 0.9


def test_a_token_sees_seven_pixels_around_its_patch():
    net = autoencoder(40, convolutions=(16, 16, 16))
    hidden = torch.zeros(1, 3, 40, 40, requires_grad=True)
    embedded = net._embedded(hidden)[0, 12]  # the patch of the pixels 16 to 23
    (gradient,) = torch.autograd.grad(embedded.square().sum(), hidden)
    rows = gradient[0].abs().sum((0, 2)).nonzero().flatten().tolist()
    columns = gradient[0].abs().sum((0, 1)).nonzero().flatten().tolist()
    assert rows == columns == list(range(16 - 7, 24 + 7))


def test_each_image_keeps_the_patches_of_its_own_smallest_uniforms():
    net, images = autoencoder(mask_ratio=0.75), random_images(1)
    both = torch.cat((keeping(16, (0, 3, 9, 15)), keeping(16, (2, 3, 4, 5))))
    found = net(images.expand(2, -1, -1, -1), both).patches
    assert net.kept == 4
    for image in range(2):
        torch.testing.assert_close(found[image], net(images, both[image : image + 1]).patches[0], rtol=1e-5, atol=1e-5)
    assert not torch.isclose(found[0], found[1]).any()


def test_without_masks_the_uniforms_do_not_matter():
    net, images = autoencoder(mask_ratio=0.0), random_images()
    first, second = net(images, uniforms(seed=1)), net(images, uniforms(seed=2))
    torch.testing.assert_close(first.patches, second.patches, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask_ratio", [0.0, 0.75])
def test_features_are_decoded_to_images_as_if_nothing_had_been_masked(mask_ratio):
    net, unmasked, images = autoencoder(mask_ratio=mask_ratio), autoencoder(mask_ratio=0.0), random_images()
    shown, expected = net.images_of(net.features(images)), unmasked.image_of(unmasked(images, uniforms()).patches)
    assert shown.dtype == torch.uint8
    assert (shown.int() - expected.int()).abs().max() <= 1  # the tokens come in another order, and are rounded


def test_targets_are_standardised_pixels_patch_by_patch():
    net, images = autoencoder(), random_images()
    targets, expected = net.targets(images), standardized(images)
    for patch, y, x, channel in [(0, 0, 0, 0), (1, 3, 7, 2), (4, 7, 0, 1), (15, 5, 2, 0)]:
        row, column = divmod(patch, 4)
        pixel = expected[:, channel, row * PATCH + y, column * PATCH + x]
        torch.testing.assert_close(targets[:, patch, (y * PATCH + x) * 3 + channel], pixel)


def test_an_image_comes_back_from_its_patches():
    net, images = autoencoder(), random_images()
    assert torch.equal(net.image_of(net.targets(images)), images)
    white, black = net.image_of(torch.full((2, 16, 192), 9.0) * torch.tensor([1.0, -1.0])[:, None, None])
    assert white.unique().tolist() == [255]
    assert black.unique().tolist() == [0]


def test_learns_to_reconstruct_a_few_images_and_their_rewards():
    colors = torch.rand(6, 3, 1, 1, generator=generator(5)) * 255
    images = colors.expand(-1, -1, 16, 16).to(torch.uint8)
    rewards = torch.linspace(0, 10, 6)
    sizes = {"dimensions": 32, "heads": 2, "encoder_blocks": 1, "decoder_blocks": 1, "convolutions": (8, 16, 16)}
    net = MaskedAutoencoder(16, generator(0), mask_ratio=0.5, **sizes)
    adam = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses = []
    for chosen in torch.rand(120, 6, 4, generator=generator(1)):
        losses.append(torch.stack(net.loss(images, rewards, chosen)))
        adam.zero_grad()
        losses[-1].sum().backward()
        adam.step()
    first, last = torch.stack(losses[:5]).mean(0), torch.stack(losses[-10:]).mean(0)
    assert (last < 0.05 * first).all(), (first, last)
    assert all(each.grad.isfinite().all() for each in net.parameters())


@pytest.mark.parametrize(("reads_reward", "read"), [("token", 256), ("pixels", 192)])
def test_has_the_parameters_of_its_layers_at_full_size(reads_reward, read):
    net = MaskedAutoencoder(64, generator(), reads_reward=reads_reward)
    assert (net.patches, net.kept, net.tokens) == (64, 16, 65)
    convolutions = 16 * 3 * 32 + 32 + 16 * 32 * 64 + 64 + 16 * 64 * 128 + 128 + 128 * 256 + 256
    attention = 256 * 768 + 768 + 256 * 256 + 256
    perceptron = 256 * 1024 + 1024 + 1024 * 256 + 256
    norm = 2 * 256
    block = attention + perceptron + 2 * norm
    tokens = 2 * 256  # class and mask
    encoder = convolutions + 4 * block + norm
    decoder = 256 * 256 + 256 + 3 * block + norm
    outputs = 256 * 192 + 192 + read + 1
    assert sum(each.numel() for each in net.parameters()) == encoder + decoder + tokens + outputs


def test_losses_are_float32_under_autocast():
    net, images, chosen = autoencoder(), random_images(), uniforms()
    rewards = torch.tensor([1.0, 2.0, 3.0])
    expected = net.loss(images, rewards, chosen)
    with torch.autocast("cpu", torch.bfloat16):
        found = net.loss(images, rewards, chosen)
    assert all(each.dtype == torch.float32 for each in found)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_nothing_is_read_back_from_the_device():
    net = autoencoder().to("meta")
    images = torch.empty(2, 3, 32, 32, dtype=torch.uint8, device="meta")
    pixel_loss, reward_loss = net.loss(images, torch.empty(2, device="meta"), torch.empty(2, 16, device="meta"))
    (pixel_loss + reward_loss).backward()
    assert net.features(images).shape == (2, 17, 16)
    assert net.image_of(net.targets(images)).shape == images.shape


def test_the_generator_alone_decides_on_the_weights():
    before = torch.random.get_rng_state()
    nets = [MaskedAutoencoder(16, generator(seed), dimensions=16, convolutions=(4, 4, 4)) for seed in (0, 0, 1)]
    assert torch.equal(torch.random.get_rng_state(), before)
    same, other = (list(net.state_dict().values()) for net in nets[1:])
    for first, second in zip(nets[0].state_dict().values(), same, strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(nets[0].class_token, other[0])


@pytest.mark.parametrize("image_size", [60, 4, 0])
def test_an_image_that_is_no_grid_of_patches_is_refused(image_size):
    with pytest.raises(ValueError, match=f"image_size must be a multiple of the 8 pixels of a patch, got {image_size}"):
        autoencoder(image_size)


@pytest.mark.parametrize("mask_ratio", [1.0, -0.5])
def test_a_mask_ratio_that_leaves_no_patch_is_refused(mask_ratio):
    with pytest.raises(ValueError, match=f"mask_ratio must leave 1 to 16 of 16 patches, got {mask_ratio}"):
        autoencoder(mask_ratio=mask_ratio)
