"""Says at the end of a run which optional parts of this machine the tests really exercised."""

import fcntl
import gc
import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from benchmarks.chromium import find_chromium

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


def _namespaces() -> bool:
    from veriloop.sandbox.probe import probe

    return probe().tier > 0


@pytest.fixture(autouse=True)
def own_plugins():
    """What a test's plugins register is forgotten, and their modules with it."""
    name = "veriloop.verifiers.registry"
    registry = sys.modules.get(name)
    loaded, registered = (set(registry._LOADED), set(registry._REGISTRY)) if registry else ((), ())
    imported = set(sys.modules)
    yield
    if not (registry := sys.modules.get(name)):
        return
    for plugin in registry._LOADED.keys() - loaded:
        del registry._LOADED[plugin]
    for added in registry._REGISTRY.keys() - registered:
        module = registry._REGISTRY[added].check.__module__
        if module.rpartition(".")[0] not in registry._PACKAGES:
            del registry._REGISTRY[added]
            if module not in imported:
                sys.modules.pop(module, None)


@pytest.fixture(scope="module", autouse=True)
def alone_with_ray(request, tmp_path_factory):
    """Files with tests of Ray take turns: one looks for no running cluster while another starts
    its own."""
    items = (item for item in request.session.items if item.path == request.path)
    if not any(item.get_closest_marker("ray") for item in items):
        yield
        return
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # of all workers
    with (shared / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


PUBLISHED = Path(__file__).parents[1] / "models/SmolLM2-135M-Instruct"
TRACKERS = ("wandb", "mlflow", "trackio")
LANGUAGE_TOOLS = ("gcc", "g++", "node", "bash", "awk")


def _languages() -> bool:
    """Whether the tools of all other languages are here, and what bounds their processes."""
    from veriloop.sandbox.probe import probe

    return probe().tier == 1 and probe().cgroup and all(map(shutil.which, LANGUAGE_TOOLS))


def _no_docker() -> str:
    """Why no Docker daemon can be used here; "" where one can."""
    from veriloop.sandbox.docker.engine import connect
    from veriloop.sandbox.probe import SandboxUnavailableError

    try:
        connect().close()
    except SandboxUnavailableError as refusal:
        return str(refusal)
    return ""


def _trackers() -> bool:
    from veriloop.pipeline.runs.trackers.mirror import installed

    return all(map(installed, TRACKERS))


def _gloo() -> bool:
    import torch.distributed

    return torch.distributed.is_available() and torch.distributed.is_gloo_available()


OPTIONAL = {
    "vllm": lambda: importlib.util.find_spec("vllm") is not None,
    "namespaces": _namespaces,
    "languages": _languages,
    "docker": lambda: not _no_docker(),
    "browser": lambda: find_chromium() is not None,
    "trackers": _trackers,
    "ranks": _gloo,
    "ray": lambda: importlib.util.find_spec("ray") is not None,
    "published": lambda: (PUBLISHED / "model.safetensors").is_file(),
}
FOLDERS = {
    "tests/sandbox": "namespaces",
    "tests/sandbox/languages": "languages",
    "tests/pipeline/cluster/test_ranks.py": "ranks",
}  # whole folders and files that exercise a part

_exercised = dict.fromkeys(OPTIONAL, 0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with many slow tests come first, then those with many: what is begun last is short."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    all_of = Counter(item.path for item in items)
    items.sort(key=lambda item: (-slow[item.path], -all_of[item.path]))


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


_imports_seen = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Freeze the heap again: a stage in which something was imported unfreezes it at its end."""
    global _imports_seen
    module = sys.modules.get("veriloop.pipeline.training.gc_freeze")
    if module is not None and module._freezes != _imports_seen:
        _imports_seen = module._freezes
        gc.collect()
        gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A report's keywords hold folder names too, so what a test exercises is told apart."""
    marked = [part for part in OPTIONAL if item.get_closest_marker(part)]
    item.user_properties += [("exercises", part) for part in marked]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" or not report.passed:
        return
    for kind, part in report.user_properties:
        if kind == "exercises":
            _exercised[str(part)] += 1
    for folder, part in FOLDERS.items():
        _exercised[part] += report.nodeid.startswith(folder)


def _asked() -> list[str]:
    return [part for part in os.environ.get("VERILOOP_EXERCISE", "").split(",") if part]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("optional parts")
    for part in _asked() or OPTIONAL:
        terminalreporter.line(f"{part}: exercised by {_exercised[part]} passing tests")
    if "namespaces" in _asked():
        from veriloop.sandbox.probe import probe

        terminalreporter.line(str(probe()))
    if "languages" in _asked() and (absent := [x for x in LANGUAGE_TOOLS if not shutil.which(x)]):
        terminalreporter.line(f"languages: not installed: {', '.join(absent)}")
    if "docker" in _asked():
        terminalreporter.line(_no_docker() or "a Docker daemon answers")
    if "trackers" in _asked() and not _trackers():
        terminalreporter.line("wandb, mlflow and trackio are not all installed")
    if "browser" in _asked() and find_chromium() is None:
        terminalreporter.line("no Chromium is installed")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A part that the run was to exercise, that is here, and that was not, is a failure."""
    if hasattr(session.config, "workerinput") or exitstatus not in (0, 5):
        return
    idle = [part for part in _asked() if OPTIONAL[part]() and not _exercised[part]]
    if idle:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nparts that are here were not exercised: {', '.join(idle)}")
    elif _asked() and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # not here, and said so above


@pytest.fixture(scope="session")
def lent_pool():
    """Judges that stay: closing them is left to the end of the session."""
    from veriloop.verifiers.pool import VerifierPool

    class Lent(VerifierPool):
        def close(self):
            pass

    pool = Lent()
    yield pool
    VerifierPool.close(pool)


@pytest.fixture
def one_pool(lent_pool, monkeypatch):
    """Runs are judged by the same workers: to start others takes longer than to train."""
    from veriloop.pipeline.rollouts import grade

    monkeypatch.setattr(grade, "VerifierPool", lambda *_, **__: lent_pool)


@pytest.fixture(scope="module")
def forked_engines():
    """Samplers in a process of their own have torch imported when they begin."""
    from types import SimpleNamespace

    from tests.forked import forked_popen, start_server
    from veriloop.pipeline.sampling import process_engine

    start_server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            process_engine,
            "subprocess",
            SimpleNamespace(**{**vars(subprocess), "Popen": forked_popen}),
        )
        yield


@pytest.fixture(scope="session")
def tokenizer():
    """A tokenizer trained on a few documents of the corpus. Tests must not change it."""
    from random import Random

    from veriloop.data import corpus
    from veriloop.data.tokenizer import train

    random = Random(0)
    return train((corpus.document(random, corpus.Mix()) for _ in range(300)), 300)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory):
    """Folder of an untrained model by (tied, more end ids): a real checkpoint, heads of size 32."""
    from random import Random

    import torch

    from veriloop.data import corpus
    from veriloop.data.tokenizer import train
    from veriloop.pipeline.config.pretraining import TinyModel
    from veriloop.pipeline.model.policy import save_policy
    from veriloop.stages.base import untrained

    made = {}

    def make(*, tied: bool = False, ends: tuple[int, ...] = ()):
        if (tied, ends) not in made:
            random = Random(0)
            documents = (corpus.document(random, corpus.Mix()) for _ in range(600))
            tokenizer = train(documents, 400)
            torch.manual_seed(0)
            shape = TinyModel(
                hidden=64, layers=2, heads=2, feed_forward=96, vocabulary=400, tied=tied
            )
            model = untrained(shape, tokenizer)
            with torch.no_grad():  # sharper than at birth, so that mistakes show
                for parameter in model.parameters():
                    if parameter.ndim == 2:
                        parameter.mul_(4)
            model.generation_config.eos_token_id = [tokenizer.eos_token_id, *ends]
            folder = tmp_path_factory.mktemp("tiny")
            save_policy(model, tokenizer, folder)
            made[tied, ends] = folder
        return made[tied, ends]

    return make


@pytest.fixture(scope="session")
def tiny_classifier(tiny_checkpoint, tmp_path_factory: pytest.TempPathFactory):
    """Folder of an untrained reward model."""
    from veriloop.pipeline.model.policy import load_tokenizer
    from veriloop.pipeline.model.scalar_head import load_classifier

    start, folder = tiny_checkpoint(), tmp_path_factory.mktemp("classifier")
    tokenizer = load_tokenizer(start)
    load_classifier(start, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def hub(monkeypatch):
    """A hub on this machine, with a token for it in the environment."""
    from huggingface_hub import constants

    from tests.hub_server import TOKEN, served_hub

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its storage is another service
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with served_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        yield hub
