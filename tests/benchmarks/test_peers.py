"""Verifiers and checkpoints inside their peers: what needs no environment of its own."""

import importlib
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """A benchmark as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def peer(script):
    """Function: a peer by its name."""
    return lambda name: next(one for one in script("peers").PEERS if one.name == name)


@pytest.fixture
def checkpoint(script, tiny_checkpoint, tmp_path):
    """An untrained one, with so many ends that some answers have one, and what we make of it."""
    folder = shutil.copytree(tiny_checkpoint(ends=tuple(range(200, 220))), tmp_path / "made")
    script("peer_checkpoint").expect(folder)
    return folder


def broken(told):
    return [claim for claim in told["claims"] if not claim["holds"]]


@pytest.mark.slow
def test_trl_trains_on_our_rewards_and_logs_them(script, peer, tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed")
    homes = script("peer_homes")
    told = homes.claims_of(peer("TRL"), homes.copy_of(tmp_path / "code", None, None), {})
    assert broken(told) == [] and len(told["claims"]) > 10
    assert told["versions"]["trl"]


@pytest.mark.slow
def test_a_fault_in_the_adapter_is_noticed_inside_trl(script, peer, tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed")
    homes = script("peer_homes")
    root = homes.copy_of(tmp_path / "code", None, peer("TRL").faults[0])
    told = homes.claims_of(peer("TRL"), root, {})
    (first, *_) = broken(told)
    assert first["claim"] == "plain: logged number is ours"
    assert "None" in first["wanted"] and "None" not in first["came"]


@pytest.mark.slow
def test_transformers_alone_asks_and_answers_as_we_do(script, peer, checkpoint, tmp_path):
    homes = script("peer_homes")
    finishes = {row["finish"] for row in json.loads((checkpoint / homes.EXPECTED).read_text())}
    assert finishes == {"stop", "length"}
    told = homes.claims_of(
        peer("transformers"), homes.copy_of(tmp_path / "code", checkpoint, None), {}
    )
    assert broken(told) == [] and len(told["claims"]) == 3
    fault = peer("transformers").faults[0]
    root = homes.copy_of(tmp_path / "other", checkpoint, fault)
    (claim,) = broken(homes.claims_of(peer("transformers"), root, {}))
    assert claim["claim"] == "greedy answers are ours, ended alike"


def test_every_fault_changes_what_stands_there(script):
    for one in script("peers").PEERS:
        assert one.faults and (BENCHMARKS / "inside" / one.script).is_file()
        for fault in one.faults:
            if not fault.file.startswith("checkpoint/"):
                assert (ROOT / fault.file).read_text().count(fault.old) == 1, fault.what


def test_a_fault_that_no_longer_fits_is_refused(script, tmp_path):
    homes = script("peer_homes")
    fault = homes.Fault(what="x", file="verifiers/adapters/trl.py", old="no such words", new="")
    with pytest.raises(homes.PeerError, match="does not have what 'x' changes: no such words"):
        homes.copy_of(tmp_path / "code", None, fault)


def test_an_environment_is_pinned_and_has_a_place_of_its_own_pins(script, peer, monkeypatch):
    homes = script("peer_homes")
    places = set()
    for name in ("verl", "OpenRLHF", "prime verifiers"):
        lines = (ROOT / "requirements" / peer(name).needs).read_text().splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins) and pins == sorted(pins)
        places.add(homes.home_of(peer(name)))
    assert len(places) == 3
    assert homes.python_of(peer("TRL")) == sys.executable


def test_what_ends_early_or_says_nothing_is_no_proof(script, peer, tmp_path, monkeypatch):
    homes = script("peer_homes")
    monkeypatch.setattr(homes, "INSIDE", tmp_path)
    for body in ("print('claims: {}'); raise SystemExit(3)", "print('all is well')"):
        (tmp_path / "of_trl.py").write_text(body)
        with pytest.raises(homes.PeerError, match=r"of_trl\.py ended with"):
            homes.claims_of(peer("TRL"), tmp_path, {})
        assert homes.noticed(peer("TRL"), tmp_path, {})
    (tmp_path / "of_trl.py").write_text("""print('x\\nclaims: {"claims": [{"holds": true}]}')""")
    assert homes.claims_of(peer("TRL"), tmp_path, {}) == {"claims": [{"holds": True}]}
    assert not homes.noticed(peer("TRL"), tmp_path, {})


def test_shortfalls_name_what_does_not_hold_and_what_nobody_noticed(script):
    peers = script("peers")
    row = {
        "peer": "TRL",
        "called": "train",
        "versions": {"trl": "1", "torch": "2"},
        "claims": [
            {"claim": "a", "holds": True},
            {"claim": "b", "holds": False, "came": "1", "wanted": "2"},
        ],
        "faults": [{"fault": "c", "noticed": False}, {"fault": "d", "noticed": True}],
    }
    assert peers.shortfalls([row]) == ["TRL: b: 1, not 2", "TRL does not notice: c"]
    assert peers.line(row) == ["TRL", "1", "train", "1 of 2", "1 of 2"]


def test_claims_are_reported_on_one_line_with_what_came(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS / "inside"))
    claims = importlib.import_module("claims")
    found = claims.Claims("called", ["pytest"])
    found.holds("yes", [1.0], [1.0])
    found.holds("no", None, 0.0)
    found.tell()
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line.removeprefix(claims.MARK))
    assert told["versions"] == {"pytest": pytest.__version__} and told["called"] == "called"
    wrong = {"claim": "no", "holds": False, "came": "None", "wanted": "0.0"}
    assert told["claims"] == [{"claim": "yes", "holds": True}, wrong]
