"""One setting names the sandbox, wherever it is read; a wrong one says what is known."""

import sys
from types import ModuleType

import pytest

from sandbox import backends
from sandbox.backends import open_backend
from sandbox.probe import SandboxUnavailableError


@pytest.fixture
def opened(monkeypatch):
    """What each backend's class is called with: (class, positional, by name)."""
    asked = []
    for found in backends.BACKENDS.values():
        path, _, kind = found.executor.partition(":")
        module = ModuleType(path)

        def opening(*args, kind=kind, **options):
            asked.append((kind, args, options))
            return kind

        setattr(module, kind, opening)
        monkeypatch.setitem(sys.modules, path, module)
    monkeypatch.delenv(backends.TOKEN_VARIABLE, raising=False)
    return asked


@pytest.mark.parametrize(
    ("setting", "call"),
    [
        ("namespace", ("NamespaceExecutor", (), {"slots": 3})),
        ("reduced", ("NamespaceExecutor", (), {"slots": 3, "allow_reduced": True})),
        ("docker", ("DockerExecutor", (), {"slots": 3})),
        ("remote:http://h:1/p", ("RemoteExecutor", ("http://h:1/p",), {"slots": 3})),
    ],
)
def test_a_setting_opens_its_executor(opened, setting, call):
    assert open_backend(setting, slots=3) == call[0]
    assert opened == [call]


def test_slots_are_left_to_the_backend_unless_given(opened):
    open_backend(backends.DEFAULT)
    assert opened == [("NamespaceExecutor", (), {"slots": None})]


def test_a_remote_server_gets_the_token_of_the_environment(opened, monkeypatch):
    monkeypatch.setenv("VERILOOP_SANDBOX_TOKEN", "t")
    open_backend("remote:http://h")
    open_backend("namespace")
    assert [options.get("token_variable") for _, _, options in opened] == [
        "VERILOOP_SANDBOX_TOKEN", None
    ]  # fmt: skip


KNOWN = "Known: namespace, reduced, docker, remote:URL"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("namespaces", f"no backend 'namespaces'. Did you mean 'namespace'? {KNOWN}"),
        ("Remote:http://x", f"no backend 'Remote:http://x'. Did you mean 'remote'? {KNOWN}"),
        ("1", f"no backend '1'. {KNOWN}"),
        ("", f"no backend ''. {KNOWN}"),
        ("remote", f"backend 'remote' must be written remote:URL. {KNOWN}"),
        ("remote:", f"backend 'remote:' must be written remote:URL. {KNOWN}"),
        ("docker:x", f"backend 'docker:x' must be written docker. {KNOWN}"),
        ("docker:", f"backend 'docker:' must be written docker. {KNOWN}"),
    ],
)
def test_a_setting_that_names_none_says_what_is_known(opened, setting, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011  compared whole below
        open_backend(setting)
    assert str(refused.value) == said and not opened


def test_a_package_that_is_missing_makes_a_backend_unavailable(monkeypatch):
    lacking = backends.Backend(executor="sandbox.no_such_part:Executor", told="")
    monkeypatch.setitem(backends.BACKENDS, "docker", lacking)
    with pytest.raises(
        SandboxUnavailableError, match=r"backend 'docker' cannot be used: No module"
    ):
        open_backend("docker")


def test_a_real_remote_executor_is_opened_without_a_request():
    box = open_backend("remote:http://127.0.0.1:9")
    assert (box.backend, box.tier) == ("remote", 0)
    box.close()
    with pytest.raises(ValueError, match="'nowhere' is no address of a server"):
        open_backend("remote:nowhere")
