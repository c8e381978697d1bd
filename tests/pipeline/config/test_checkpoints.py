"""Checkpoints by name: folders, the hub's cache, the hub, and what is refused."""

import json

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from veriloop.pipeline.config.checkpoints import cached, commit_of, find_checkpoint, split
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import lineage

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def snapshot(tmp_path):
    """A model as the hub's cache stores it."""
    folder = tmp_path / "models--a--b" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def hub(monkeypatch):
    """Function: set what the cache and the hub return; an exception is raised."""
    calls = []

    def answer(cache, network=None):
        def snapshot_download(repo, *, revision=None, local_files_only=False, allow_patterns):
            calls.append((repo, revision, local_files_only))
            assert "*.safetensors" in allow_patterns and "*.bin" not in allow_patterns
            result = cache if local_files_only else network
            if isinstance(result, Exception):
                raise result
            return str(result)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        return calls

    return answer


def test_a_folder_is_used_as_it_is(hub, snapshot):
    calls = hub(ValueError("not called"))
    assert find_checkpoint(str(snapshot)) == snapshot and not calls


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"start: .* \(no config\.json in it\)"):
        find_checkpoint(str(tmp_path), "start")


@pytest.mark.parametrize("name", ["outputs/no/such", "nowhere", "./a", "../a/b", "/a/b", "a/b@"])
def test_a_missing_path_is_never_looked_up_on_the_hub(hub, name):
    calls = hub(ValueError("not called"))
    with pytest.raises(RecipeError, match="no such folder, and not an id on the hub"):
        find_checkpoint(name)
    assert not calls


def test_a_missing_folder_below_an_existing_one_is_a_path(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    assert split("outputs/zero-1") is None and split("Qwen/Qwen2.5-0.5B") is not None


@pytest.mark.parametrize(
    ("name", "revision"), [("a/b", None), ("a/b@main", "main"), ("a/b@refs/pr/1", "refs/pr/1")]
)
def test_the_cache_comes_before_the_hub(hub, snapshot, name, revision):
    calls = hub(snapshot)
    assert find_checkpoint(name) == snapshot and calls == [("a/b", revision, True)]


def test_a_model_that_is_not_cached_is_downloaded(hub, snapshot):
    calls = hub(LocalEntryNotFoundError("nothing"), snapshot)
    assert find_checkpoint("a/b@main") == snapshot
    assert calls == [("a/b", "main", True), ("a/b", "main", False)]


def test_an_incomplete_cache_is_completed(hub, snapshot, tmp_path):
    partial = tmp_path / "partial"
    partial.mkdir()
    (partial / "config.json").write_text("{}")
    hub(partial, snapshot)
    assert cached("a/b") is None and find_checkpoint("a/b") == snapshot


SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
INDEX = json.dumps({"weight_map": dict(zip("ab", SHARDS, strict=True))})
SHARDED = {"config.json": "{}", SHARDS[0]: "", SHARDS[1]: "", "tokenizer.json": "{}",
           "model.safetensors.index.json": INDEX}  # fmt: skip


@pytest.mark.parametrize("missing", [*SHARDED, ""])
def test_a_download_that_was_stopped_is_resumed(hub, snapshot, tmp_path, monkeypatch, missing):
    held = tmp_path / "held"
    held.mkdir()
    for name, text in SHARDED.items():
        if name != missing:
            (held / name).write_text(text)
    calls = hub(held, snapshot)
    assert find_checkpoint("a/b") == (snapshot if missing else held)
    assert len(calls) == 1 + bool(missing)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if missing:
        expected = {"tokenizer.json": "a tokenizer"}.get(missing, missing)
        with pytest.raises(RecipeError, match=rf"not finished: .*{expected}.* HF_HUB_OFFLINE forb"):
            find_checkpoint("a/b")


@pytest.mark.parametrize("failure", [ConnectionError("no route\nlong"), ValueError("no revision")])
def test_a_refusal_names_id_revision_and_cache(hub, failure):
    hub(LocalEntryNotFoundError("nothing"), failure)
    expected = rf"start: .*a/b at revision v2 is not in the cache at .*{type(failure).__name__}: no"
    with pytest.raises(RecipeError, match=expected):
        find_checkpoint("a/b@v2", "start")


def test_offline_the_hub_is_not_called(hub, monkeypatch):
    calls = hub(LocalEntryNotFoundError("nothing"), ValueError("not called"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RecipeError, match=r"a/b at revision main .* HF_HUB_OFFLINE forbids"):
        find_checkpoint("a/b")
    assert calls == [("a/b", None, True)]


def test_lineage_records_the_commit_of_every_checkpoint_from_the_hub(hub, snapshot):
    hub(snapshot)
    recipe = {"start": "a/b@main", "label": {"reward_model": "a/b"}, "name": "a/b"}
    inputs = lineage.read_by(recipe, snapshot)["inputs"]
    assert set(inputs) == {"start", "label.reward_model"}
    assert {entry["commit"] for entry in inputs.values()} == {COMMIT} == {commit_of(snapshot)}
