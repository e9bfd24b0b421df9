import pytest
from requirements import needs


def test_what_is_missing_is_a_reason_to_skip_and_an_error_where_it_is_required(monkeypatch):
    monkeypatch.setenv("VCSE_REQUIRE", "site chromium")
    assert not needs("chromium", "/usr/bin/chromium", "there is no browser").args[0]
    mark = needs("gl", None, "nothing renders")
    assert (mark.args[0], mark.kwargs["reason"]) == (True, "nothing renders")
    with pytest.raises(RuntimeError, match="VCSE_REQUIRE lists chromium, but there is no browser"):
        needs("chromium", None, "there is no browser")
    monkeypatch.delenv("VCSE_REQUIRE")
    assert needs("chromium", None, "there is no browser").args[0]
