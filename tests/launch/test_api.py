import pytest

import vcse


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"seeds": 0}, "seeds must be at least 1, or a list of seeds, got 0"),
        ({"seeds": []}, r"seeds must be at least 1, or a list of seeds, got \[\]"),
        ({"seeds": -2}, "seeds must be at least 1, or a list of seeds, got -2"),
        ({"bonus": []}, "bonus must be one name or more, got none"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
    ],
)
def test_nothing_to_train_or_nobody_to_do_it_is_refused(tmp_path, asked, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        vcse.train("minigrid/Empty-5x5", out=tmp_path / "runs", **asked)
    assert not (tmp_path / "runs").exists()
