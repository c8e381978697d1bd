"""What of a checkpoint reaches the hub, and what is refused; against a hub on this machine."""

import json

import pytest

from veriloop.pipeline.config.checkpoints import check_hub_id
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.hub_push import (
    HubRepo,
    PushError,
    fill,
    push,
    require_access,
    require_token,
    without_paths,
)

pytestmark = pytest.mark.filterwarnings(  # of huggingface_hub's own call of httpx2
    "ignore:Use 'content=:DeprecationWarning"
)
REPO = HubRepo(id="me/model")
MODEL = {
    "config.json": '{"model_type": "llama", "_name_or_path": "/home/ada/base"}',
    "generation_config.json": "{}",
    "model.safetensors": "weights",
    "tokenizer.json": '{"vocab": {"/usr/bin": 1}}',
    "tokenizer_config.json": '{"name_or_path": "org/base"}',
    "chat_template.jinja": "{{ messages }}",
    "README.md": "started with --start /home/ada/models/base\n",
}
OF_THE_RUN = {
    "trainer_state.pt": "moments",
    "manifest.json": "{}",
    "base.json": "{}",
    "masters/model.safetensors": "float32",
    "adapter/adapter_model.safetensors": "low rank",
    ".hidden.json": "{}",
}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "step_000002"
    for name, text in (MODEL | OF_THE_RUN).items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


@pytest.mark.slow
def test_the_model_arrives_and_what_is_of_the_run_does_not(hub, folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert push(folder, REPO) == f"{hub.url}/me/model/commit/1"
    repo = hub.repos["me/model"]
    assert repo["private"] is True and set(repo["files"]) == set(MODEL)
    assert repo["message"] == "Upload a checkpoint by veriloop"
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja"):
        assert repo["files"][name].decode() == MODEL[name]
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_no_path_of_this_machine_arrives(hub, folder):
    push(folder, REPO)
    files = hub.repos["me/model"]["files"]
    assert b"ada" not in b"".join(files.values())
    assert json.loads(files["config.json"]) == {"model_type": "llama"}
    assert json.loads(files["tokenizer_config.json"]) == {"name_or_path": "org/base"}
    assert files["README.md"] == "started with --start …/base\n".encode()


@pytest.mark.slow
def test_weights_of_an_earlier_push_are_replaced_and_other_files_stay(hub, folder):
    push(folder, REPO)
    files = hub.repos["me/model"]["files"]
    files |= {"notes.md": b"mine", "model-00002-of-00002.safetensors": b"an older model"}
    (folder / "model.safetensors").write_text("other weights")
    push(folder, REPO)
    assert files["model.safetensors"] == b"other weights" and files["notes.md"] == b"mine"
    assert set(files) == {*MODEL, "notes.md"}


def test_a_checkpoint_without_a_card_is_uploaded_too(tmp_path, folder):
    (folder / "README.md").unlink()
    draft = tmp_path / "draft"
    draft.mkdir()
    fill(draft, folder)
    assert {path.name for path in draft.iterdir()} == set(MODEL) - {"README.md"}


def test_texts_are_of_utf_8_on_any_machine_and_those_without_a_path_as_they_were(
    tmp_path, folder, monkeypatch
):
    texts = {
        "config.json": '{"_name_or_path": "/home/ada/base", "author": "Zoë"}',
        "generation_config.json": '{"author":"Zoë"}',
        "README.md": "by Zoë\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    draft = tmp_path / "draft"
    draft.mkdir()
    monkeypatch.setattr("io.text_encoding", lambda encoding, level=2: encoding or "ascii")
    fill(draft, folder)
    texts["config.json"] = '{\n  "author": "Zoë"\n}\n'
    assert {name: (draft / name).read_bytes().decode() for name in texts} == texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("veriloop zero a.yaml --start /mnt/data/models/q", "veriloop zero a.yaml --start …/q"),
        ("| start | /home/a\\_b/m |", "| start | …/m |"),
        ("--output=/home/a/run", "--output=…/run"),
        ('["/home/a/x.jsonl", 3]', '["…/x.jsonl", 3]'),
        ("see https://host/a/b", "see https://host/a/b"),
        ("<think>1/2/3</think> and/or/not", "<think>1/2/3</think> and/or/not"),
        ("outputs/mine/zero", "outputs/mine/zero"),
        ("org/model at ./a/b", "org/model at ./a/b"),
    ],
)
def test_absolute_paths_are_shortened_and_nothing_else_is(text, expected):
    assert without_paths(text) == expected


@pytest.mark.slow
def test_a_repository_of_the_other_visibility_is_never_written_to(hub, folder):
    require_access(HubRepo(id="me/open", public=True))
    assert hub.repos["me/open"]["private"] is False
    with pytest.raises(RecipeError, match=r"me/open \(private\): it exists and is public"):
        push(folder, HubRepo(id="me/open"))
    require_access(REPO)
    with pytest.raises(RecipeError, match=r"me/model \(public\): it exists and is private"):
        push(folder, HubRepo(id="me/model", public=True))
    assert hub.repos["me/open"]["files"] == hub.repos["me/model"]["files"] == {}


def test_without_a_token_nothing_is_asked_of_the_hub(hub, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(RecipeError, match="me/model: there is no token of the hub; set HF_TOKEN"):
        require_access(REPO)
    assert hub.repos == {}


def test_offline_is_said_so(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(RecipeError, match="HF_HUB_OFFLINE forbids uploads; unset it"):
        require_token(REPO)


def test_a_token_that_the_hub_refuses_is_a_mistake_before_the_run(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    with pytest.raises(RecipeError, match=r"cannot push to me/model: .*401.* \(\w+: .*401"):
        require_access(REPO)


def test_so_is_a_repository_that_can_be_read_only(hub):
    hub.read_only.add("me/model")
    with pytest.raises(RecipeError, match=r"cannot push to me/model: .*403"):
        require_access(REPO)


@pytest.mark.slow
def test_an_upload_that_fails_is_a_push_error(hub, folder):
    hub.full = True
    with pytest.raises(PushError, match=r"cannot push to me/model: .*403"):
        push(folder, REPO)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("model", "'model' is no repository on the hub: organisation/model$"),
        ("", "'' is no repository on the hub"),
        ("a/b/c", "'a/b/c' is no repository on the hub: organisation/model$"),
        ("https://huggingface.co/me/model", "Did you mean 'me/model'\\?"),
        ("me/mo del", "alphanumeric chars"),
        ("me/a--b", "Cannot have -- or .."),
    ],
)
def test_what_cannot_name_a_repository_is_refused(value, said):
    with pytest.raises(ValueError, match=said):
        check_hub_id(value)
    assert check_hub_id("me/model-1.5_b") == "me/model-1.5_b"
