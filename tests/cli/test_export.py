"""`vcse export` and `vcse push`, up to a server that speaks as the Hugging Face Hub does."""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.constants
import pytest
from play.test_load import make_run

from vcse.cli import main
from vcse.play.export import read_scores

NAME = "minigrid/LavaGapS7/vcse"
FILES = ["DONE", "README.md", "checkpoint/frame000000200064.pt", "config.json", "evaluation.json", "meta.json"]


class Hub(ThreadingHTTPServer):
    """Takes what is pushed, and keeps it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Requests)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.made, self.files, self.message, self.refuses = [], {}, "", False


class Requests(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, content, status=200):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({}, 403 if self.server.refuses else 200)

    def do_POST(self):
        hub, body = self.server, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        assert self.headers["Authorization"] == "Bearer hf_some"
        if self.path == "/api/repos/create":
            hub.made.append(json.loads(body))
            repository = f"{hub.made[-1]['organization']}/{hub.made[-1]['name']}"
            self.answer({"url": f"{hub.address}/{repository}"}, 403 if hub.refuses else 200)
        elif self.path.endswith("/preupload/main"):
            asked = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(body)["files"]]
            self.answer({"files": [{**each, "shouldIgnore": False} for each in asked]})
        elif self.path.endswith("/commit/main"):
            head, *parts = (json.loads(line)["value"] for line in body.splitlines())
            hub.message = head["summary"]
            hub.files = {each["path"]: base64.b64decode(each["content"]) for each in parts}
            self.answer({"commitUrl": f"{hub.address}/a/b/commit/1", "commitOid": "1"})
        else:
            self.answer({})


@pytest.fixture
def hub(monkeypatch):
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", "hf_some")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def without_token(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))


def test_a_policy_is_exported_from_a_directory_that_holds_one_run(tmp_path, capsys):
    make_run(tmp_path / "runs")
    out = tmp_path / "exported"
    assert main(["export", str(tmp_path / "runs"), "--out", str(out), "--episodes", "3", "--device", "cpu"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{out}\n"
    assert "minigrid-LavaGapS5/vcse/seed0 at frame 128, with weights in float16: 3 episodes, twice" in told.err
    assert read_scores(out).episodes == 3
    make_run(tmp_path / "runs", seed=1)
    assert main(["export", str(tmp_path / "runs"), "--out", str(tmp_path / "more")]) == 1
    assert "runs holds 2 runs: name one of them, such as " in capsys.readouterr().err
    assert main(["export", str(tmp_path / "runs/minigrid-LavaGapS5/vcse/seed0"), "--out", "x", "--episodes", "1"]) == 1
    assert "--episodes must be at least 2, got 1" in capsys.readouterr().err


def test_an_exported_policy_has_no_curves_and_is_not_trained_on(tmp_path, capsys):
    path, _ = make_run(tmp_path / "runs")
    policy = tmp_path / "runs" / "policy"
    assert main(["export", str(path), "--out", str(policy), "--episodes", "2", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["report", str(policy)]) == 1
    assert capsys.readouterr().err == (
        f"vcse: {policy} is an exported policy, which has no curves to report: its scores are in {policy}/README.md, "
        "and vcse eval and vcse watch play it\n"
    )
    assert main(["study", "power", str(policy), "--difference", "0.1"]) == 1
    assert capsys.readouterr().err.endswith("policy is left out: it is an exported policy, without curves.\n")
    assert main(["resume", str(tmp_path / "runs"), "--device", "cpu"]) == 1  # beside a run that is done
    assert f"{policy} is an exported policy, which can be played but not trained on" in capsys.readouterr().err


@pytest.mark.usefixtures("without_token")
def test_a_dry_run_says_what_would_be_uploaded_and_needs_no_token(capsys):
    assert main(["push", NAME, "--repo", "someone/lava", "--dry-run"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("would upload 6 files, ")
    assert first.endswith(" kB, to someone/lava:")
    assert [row.split()[0] for row in rows] == FILES


def test_a_policy_that_ships_is_pushed_with_its_card(hub, capsys):
    assert main(["push", NAME, "--repo", "someone/lava", "--private"]) == 0
    assert capsys.readouterr().out == f"{hub.address}/someone/lava\n"
    assert [(each["organization"], each["name"], each["visibility"]) for each in hub.made] == [
        ("someone", "lava", "private")
    ]
    assert sorted(hub.files) == FILES
    assert hub.message == "Policy at frame 200,064"
    assert b'snapshot_download("someone/lava")' in hub.files["README.md"]
    assert b"user/name" not in hub.files["README.md"]


def test_a_run_is_exported_before_it_is_pushed_and_what_was_pushed_is_a_policy(tmp_path, hub):
    path, _ = make_run(tmp_path)
    assert main(["push", str(path), "--repo", "me/mine", "--episodes", "2", "--device", "cpu"]) == 0
    for name, content in hub.files.items():
        (tmp_path / "pulled" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pulled" / name).write_bytes(content)
    assert read_scores(tmp_path / "pulled").episodes == 2
    assert main(["eval", str(tmp_path / "pulled"), "--episodes", "2", "--device", "cpu"]) == 0
    assert hub.made[0]["visibility"] != "private"
    assert not (path / "README.md").exists()


def test_an_edited_card_is_sent_as_it_is(tmp_path, hub):
    path, _ = make_run(tmp_path)
    out = tmp_path / "exported"
    assert main(["export", str(path), "--out", str(out), "--episodes", "2", "--device", "cpu"]) == 0
    card = (out / "README.md").read_text()
    (out / "README.md").write_text(f"{card}\nMine.\n")
    (out / ".lock").touch()
    assert main(["push", str(out), "--repo", "me/mine"]) == 0
    assert hub.files["README.md"].endswith(b"\nMine.\n")
    assert ".lock" not in hub.files


def test_what_the_hub_refuses_is_told_in_a_line(hub, capsys):
    hub.refuses = True
    assert main(["push", NAME, "--repo", "someone/lava"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("vcse: someone/lava was not pushed to the Hub: ")
    assert "403" in told
    assert told.count("\n") == 1


def test_without_a_network_it_is_told_in_a_line(monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setenv("HF_TOKEN", "hf_some")
    assert main(["push", NAME, "--repo", "someone/lava"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("vcse: someone/lava was not pushed to the Hub: ")
    assert told.count("\n") == 1


@pytest.mark.usefixtures("without_token")
def test_without_a_token_nothing_is_begun(tmp_path, capsys):
    path, _ = make_run(tmp_path)
    assert main(["push", str(path), "--repo", "me/mine"]) == 1
    assert capsys.readouterr().err == (
        "vcse: there is no token for the Hugging Face Hub: hf auth login stores one, and the variable HF_TOKEN sets "
        "one; --dry-run needs none\n"
    )


def test_without_the_extra_the_install_command_is_told(monkeypatch, capsys):
    monkeypatch.setattr("vcse.play.hub.find_spec", lambda name: None)
    assert main(["push", NAME, "--repo", "me/mine"]) == 1
    assert "huggingface_hub, which uploads, is not installed: " in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["push", NAME, "--repo", "me/mine", "--dry-run"]) == 0


@pytest.mark.parametrize("repository", ["mine", "a/b/c", "/b", "a/", "a b/c", "../c"])
def test_a_repository_is_a_user_and_a_name(repository, capsys):
    assert main(["push", NAME, "--repo", repository, "--dry-run"]) == 1
    assert f"--repo must be user/name, got {repository!r}" in capsys.readouterr().err
