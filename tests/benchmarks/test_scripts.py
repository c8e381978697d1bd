"""Every benchmark script has the same two flags, and docs/results.md shows what it measured."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PARTS = {"publish.py", "mutants.py", "equivalents.py", "footprint.py", "marked_program.py"}
PARTS |= {"suite_child.py", "language_sentences.py", "bare_forks.py", "timed_programs.py"}
PARTS |= {"tiny_runs.py", "worked_steps.py", "learning_tables.py", "recipe_tables.py"}
PARTS |= {"grpo_steps.py", "grpo_turns.py", "tuning_turns.py", "update_turns.py", "chromium.py"}
PARTS |= {"published_tables.py"}
PARTS |= {"contenders.py", "paired.py", "speed_tables.py", "gpu_sections.py", "gpu_sampling.py"}
PARTS |= {"gpu_waterfall.py", "listed_runs.py", "virtual_clock.py", "simulated_servers.py"}
PARTS |= {"peer_homes.py", "peer_checkpoint.py", "peer_tables.py"}  # no scripts of their own
PARTS |= {"ray_nodes.py", "gpu_cluster.py", "published_turns.py", "faults/raylets.py"}
PARTS |= {"faults/tiny_stages.py", "faults/mutations.py", "faults/traffic.py", "faults/oracles.py"}
PARTS |= {"faults/service_kills.py", "busy_loops.py", "targets.py", "ages.py"}
PARTS |= {"grpo_bounds.py", "bound_turns.py"}
FAULTS = sorted(f"faults/{p.name}" for p in (ROOT / "benchmarks/faults").glob("[!_]*.py"))
SCRIPTS = sorted(p.name for p in (ROOT / "benchmarks").glob("*.py") if p.name not in PARTS)
SCRIPTS += [script for script in FAULTS if script not in PARTS]
RESULTS = sorted((ROOT / "benchmarks" / "results").rglob("*.json"))


def run(script, *flags):
    words = [sys.executable, f"benchmarks/{script}", *flags]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_takes_json_and_quick_and_says_what_it_measures(script, monkeypatch, capsys):
    path = ROOT / "benchmarks" / script
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr()
    assert left.value.code in (0, None), said.err
    assert "--json" in said.out and "--quick" in said.out


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: p.stem)
def test_every_result_names_its_command_and_machine(path):
    result = json.loads(path.read_text())
    name = path.relative_to(ROOT / "benchmarks/results").with_suffix("").as_posix()
    script = result["command"].removeprefix("python benchmarks/").split(".py")[0]
    assert name == script or name.startswith(f"{script}_")  # a part of what it measures
    assert (ROOT / f"benchmarks/{script}.py").is_file()
    assert "--quick" not in result["command"]  # a full run
    assert "cores" in json.dumps(result["machine"])
    assert not result.get("survivors")


@pytest.mark.slow
def test_the_pages_match_the_results():
    done = run("readme.py", "--quick")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-500:]
