from importlib.util import find_spec

import pytest

from vcse.nets.cuda import device_code


@pytest.mark.parametrize("of", device_code.MODULES)
def test_kernels_are_where_they_are_looked_for(monkeypatch, of):
    """Seen without Triton too: the module is not imported."""
    monkeypatch.setattr(device_code, "triton_module", find_spec)
    assert device_code.device_code(of) is not None
