"""One setting names the sandbox, wherever it is read; a wrong one says what is known."""

import sys
from dataclasses import replace
from types import ModuleType

import pytest

from veriloop.sandbox import backends
from veriloop.sandbox.backends import describe, open_backend
from veriloop.sandbox.probe import Layer, Probe, SandboxUnavailableError


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
    monkeypatch.delenv(backends.VARIABLE, raising=False)
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
    open_backend(backends.AUTO)
    assert opened == [("NamespaceExecutor", (), {"slots": None})]


def test_a_remote_server_gets_the_token_of_the_environment(opened, monkeypatch):
    monkeypatch.setenv("VERILOOP_SANDBOX_TOKEN", "t")
    open_backend("remote:http://h")
    open_backend("namespace")
    assert [options.get("token_variable") for _, _, options in opened] == [
        "VERILOOP_SANDBOX_TOKEN", None
    ]  # fmt: skip


KNOWN = "Known: auto, namespace, reduced, docker, remote:URL"


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
    lacking = backends.Backend(executor="sandbox.no_such_part:Executor", description="")
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


@pytest.mark.parametrize(
    ("setting", "variable", "resolved"),
    [
        ("auto", None, "namespace"),
        ("auto", "", "namespace"),
        ("auto", "auto", "namespace"),
        ("auto", "reduced", "reduced"),
        ("auto", "remote:http://h", "remote:http://h"),
        ("docker", "reduced", "docker"),  # an explicit setting wins
        ("namespace", "docker", "namespace"),
    ],
)
def test_auto_is_the_setting_of_the_environment_and_never_a_fallback(
    monkeypatch, setting, variable, resolved
):
    monkeypatch.delenv(backends.VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(backends.VARIABLE, variable)
    assert backends.resolve(setting) == resolved


def test_a_refusal_says_how_to_choose_another_backend(opened, monkeypatch):
    def refuse(**_options):
        raise SandboxUnavailableError("tier 1 is not available here")

    module = sys.modules["veriloop.sandbox.namespace.pool"]
    monkeypatch.setattr(module, "NamespaceExecutor", refuse)
    with pytest.raises(SandboxUnavailableError) as refusal:
        open_backend("auto")
    lines = str(refusal.value).splitlines()
    assert lines[0] == "tier 1 is not available here"
    assert "sandbox.backend of the recipe, --backend, or VERILOOP_SANDBOX" in lines[1]
    assert [line.split(":")[0].strip() for line in lines[2:]] == ["reduced", "docker", "remote"]


def test_a_backend_is_described_by_its_tier_and_the_layers_in_use(monkeypatch):
    layers = [
        *("user namespace", "file tree as root", "file tree as user", "seccomp", "landlock"),
        "pidfd",
    ]
    working = tuple(Layer(name=name, works=True, detail=f"d{i}") for i, name in enumerate(layers))
    failed = Layer(name="cgroup memory+pids", works=False, detail="none")
    found = Probe(layers=(*working, failed), tier=1, way="user", python=None)
    monkeypatch.setattr(backends, "probe", lambda: found)
    in_use = {"user namespace": "d0", "file tree as user": "d2", "seccomp": "d3", "pidfd": "d5"}
    assert describe("namespace") == {"backend": "namespace", "tier": 1, "layers": in_use}
    monkeypatch.setattr(backends, "probe", lambda: replace(found, tier=2))
    reduced = {"seccomp": "d3", "landlock": "d4", "pidfd": "d5"}
    assert describe("reduced") == {"backend": "reduced", "tier": 2, "layers": reduced}
    with pytest.raises(SandboxUnavailableError, match="allow_reduced=True would accept tier 2"):
        describe("namespace")


def test_a_remote_backend_is_described_without_a_request(monkeypatch):
    monkeypatch.setenv(backends.VARIABLE, "remote:http://h")
    assert describe() == {"backend": "remote:http://h", "tier": 0}


def test_a_docker_backend_is_described_by_its_image(monkeypatch):
    monkeypatch.setattr(backends, "_image", lambda: "sha256:1")
    assert describe("docker") == {"backend": "docker", "tier": 1, "image": "sha256:1"}


def test_a_backend_that_cannot_be_described_names_the_others(monkeypatch):
    def refuse():
        raise SandboxUnavailableError("no Docker daemon answers here")

    monkeypatch.setattr(backends, "_image", refuse)
    with pytest.raises(SandboxUnavailableError, match="VERILOOP_SANDBOX to one of:\n  namespace: "):
        describe("docker")
