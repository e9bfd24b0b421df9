import math

import pytest
import torch

from vcse.nets.transformers import Transformer, grid_positions


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def transformer(dimensions=12, blocks=2, heads=3, **options):
    net = Transformer(dimensions, blocks, torch.Generator().manual_seed(1), heads=heads, **options)
    for number, parameter in enumerate(net.parameters()):  # biases and norms are of no effect where they begin
        parameter.data += 0.1 * random(*parameter.shape, seed=number)
    return net


def normalized(row, norm):
    mean = sum(row) / len(row)
    variance = sum((each - mean) ** 2 for each in row) / len(row)
    return torch.stack([(each - mean) / (variance + 1e-6).sqrt() for each in row]) * norm.weight + norm.bias


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def plain_block(tokens, block, heads):
    """One block for the tokens of one image, head by head and token by token."""
    dimensions = tokens.shape[1]
    size = dimensions // heads
    rows = [block.queries_keys_values(normalized(each, block.attention_norm)) for each in tokens]
    attended = []
    for query_row in rows:
        mixed = []
        for head in range(heads):
            piece = slice(head * size, (head + 1) * size)
            query, keys = query_row[:dimensions][piece], [row[dimensions : 2 * dimensions][piece] for row in rows]
            weights = torch.stack([(query * key).sum() / math.sqrt(size) for key in keys]).exp()
            weights = weights / weights.sum()
            mixed.append(sum(weight * row[2 * dimensions :][piece] for weight, row in zip(weights, rows, strict=True)))
        attended.append(block.projection(torch.cat(mixed)))
    tokens = [token + each for token, each in zip(tokens, attended, strict=True)]
    return torch.stack(
        [token + block.output(gelu(block.hidden(normalized(token, block.perceptron_norm)))) for token in tokens]
    )


def test_blocks_are_those_of_a_plain_loop():
    net, tokens = transformer(), 0.01 * random(2, 5, 12)  # so small that the epsilon of the norms counts
    for image, found in zip(tokens, net(tokens), strict=True):
        expected = image
        for block in net.blocks:
            expected = plain_block(expected, block, heads=3)
        expected = torch.stack([normalized(each, net.norm) for each in expected])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_tokens_in_another_order_become_the_same():
    net, tokens = transformer(), random(2, 6, 12)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(net(tokens[:, order]), net(tokens)[:, order], rtol=1e-5, atol=1e-5)


def test_images_do_not_see_each_other():
    net, tokens = transformer(), random(3, 4, 12)
    torch.testing.assert_close(net(tokens)[1], net(tokens[1:2])[0])


@pytest.mark.parametrize("mlp_ratio", [4, 2])
def test_has_the_parameters_of_its_layers(mlp_ratio):
    attention = (12 + 1) * 36 + (12 + 1) * 12
    perceptron = (12 + 1) * 12 * mlp_ratio + (12 * mlp_ratio + 1) * 12
    expected = 2 * (attention + perceptron + 2 * 24) + 24
    assert sum(each.numel() for each in transformer(mlp_ratio=mlp_ratio).parameters()) == expected


def test_positions_are_sines_and_cosines_of_x_then_of_y():
    side, dimensions = 3, 16
    *grid, corner = grid_positions(side, dimensions)

    def along(place):
        angles = [place * 10_000 ** (-i / 4) for i in range(4)]
        return [math.sin(each) for each in angles] + [math.cos(each) for each in angles]

    expected = [along(x) + along(y) for y in range(side) for x in range(side)]
    torch.testing.assert_close(torch.stack(grid), torch.tensor(expected))
    torch.testing.assert_close(corner, torch.tensor(along(side) + along(side)))


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="dimensions must be a multiple of 4, got 10"):
        grid_positions(2, 10)
    with pytest.raises(ValueError, match="dimensions must be a multiple of heads, got 12 and 5"):
        transformer(heads=5)
