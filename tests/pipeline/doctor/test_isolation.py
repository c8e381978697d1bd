"""The sandbox's table and Docker, as findings."""

from types import SimpleNamespace

import pytest

from veriloop.pipeline.doctor import isolation
from veriloop.pipeline.doctor.isolation import FIXES, NEEDED, docker, sandbox_layers
from veriloop.sandbox.probe import Layer, Probe, SandboxUnavailableError, probe


@pytest.fixture
def probed(monkeypatch):
    def give(tier, **broken):
        layers = tuple(
            Layer(name=name, works=name not in broken, detail=broken.get(name, ""))
            for name in FIXES
        )
        told = Probe(layers=layers, tier=tier, way="user", python=None)
        monkeypatch.setattr(isolation.probe, "probe", lambda: told)

    return give


@pytest.mark.parametrize(("tier", "verdict"), [(1, "ok"), (2, "warn"), (0, "fail")])
def test_the_tier_decides(probed, findings, tier, verdict):
    probed(tier)
    found = findings(sandbox_layers, None)["sandbox"]
    assert (found.verdict, found.number) == (verdict, tier)


def test_each_layer_has_a_line_and_a_fix_where_it_does_not_work(probed, findings):
    probed(0, **{"seccomp": "EPERM", "landlock": "ENOSYS"})
    found = findings(sandbox_layers, None)
    assert len(found) == 1 + len(FIXES)
    assert found["sandbox, seccomp"].verdict == "fail"
    assert found["sandbox, landlock"].verdict == "skipped"
    assert found["sandbox, landlock"].measured == "ENOSYS" and found["sandbox, landlock"].fix
    assert found["sandbox, pidfd"].verdict == "ok"


def test_every_layer_that_is_probed_has_a_fix():
    assert {layer.name for layer in probe().layers} <= set(FIXES) and set(NEEDED) <= set(FIXES)


def test_without_a_daemon_docker_is_skipped(monkeypatch, finding, here):
    def connect():
        raise SandboxUnavailableError("no Docker daemon answers here: x\nsh start")

    monkeypatch.setattr(isolation.engine, "connect", connect)
    found = finding(docker, here)
    assert (found.verdict, found.measured) == ("skipped", "no Docker daemon answers here: x")


@pytest.mark.parametrize(("image", "verdict"), [(True, "ok"), (False, "warn")])
def test_a_daemon_without_the_image_is_warned_of(monkeypatch, finding, here, image, verdict):
    closed = []
    client = SimpleNamespace(version=lambda: {"Version": "29.1"}, close=lambda: closed.append(1))

    def find_image(engine, wanted):
        if not image:
            raise SandboxUnavailableError("no image\nmore")
        return "sha256:0"

    monkeypatch.setattr(isolation.engine, "connect", lambda: client)
    monkeypatch.setattr(isolation.engine, "find_image", find_image)
    found = finding(docker, here)
    assert found.verdict == verdict and found.measured.startswith("engine 29.1") and closed == [1]
    assert found.fix == ("" if image else "veriloop sandbox build-image")
