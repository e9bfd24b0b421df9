import pytest

from vcse.launch.device_names import check_device


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda"])
def test_devices_have_three_names(name):
    assert check_device(name) == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpu", "; did you mean cuda?"),
        ("CUDA", "; did you mean cuda?"),
        ("cuda:1", ": use cuda, and CUDA_VISIBLE_DEVICES=1 to choose the GPU"),
        ("mps", ""),
        ("", ""),
    ],
)
def test_other_names_are_refused_with_what_may_have_been_meant(name, hint):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the whole text is compared)
        check_device(name)
    assert str(raised.value) == f"device must be auto, cpu or cuda, got {name!r}{hint}"
