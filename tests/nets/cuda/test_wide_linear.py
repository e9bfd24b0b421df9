import torch

from vcse.nets.cuda.wide_linear import wide_linear


def test_it_is_a_linear_layer_that_multiplies_in_float32():
    generator = torch.Generator().manual_seed(0)
    inputs, weight, bias = (torch.randn(*size, generator=generator) for size in ((6, 40), (5, 40), (5,)))
    torch.testing.assert_close(wide_linear(inputs, weight, bias), inputs @ weight.T + bias)
    rounded = inputs.to(torch.bfloat16)
    outputs = wide_linear(rounded, weight, bias)
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs, rounded.float() @ weight.T + bias)
