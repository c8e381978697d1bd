"""Try what the core promises: verify, write and check a verifier, serve, run programs, adapters.

    python scripts/core_alone.py [FOLDER]                    # with the Python that runs it
    python scripts/core_alone.py --lowest [--python 3.11]
    python scripts/core_alone.py --beside verifiers==0.4.0   # beside a trainer

One line per promise; exit code 1 when one is broken. `--lowest` and `--beside` try this checkout in
a temporary environment, the first with the lowest version of each package in the core's ranges.
They need uv and a package index. tests/test_package.py runs the first form where no other package
is.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ("math_answer", "json_answer", "language", "constraints")  # by packages of the core
ADAPTERS = ("trl", "verl", "openrlhf", "nemo_rl", "areal", "skyrl", "prime")
SERVED = """
from veriloop.data.problem import Problem
from veriloop.verifiers.service.client import ServicePool
from veriloop.verifiers.service.server import RewardService, Settings

if __name__ == "__main__":
    settings = Settings(port=0, verifiers=("parity",), plugins=("mine/parity.py",))
    problem = Problem(id="0", prompt="", verifier="parity", reference={"text": "abc"})
    with RewardService(settings) as service, ServicePool(service.url) as pool:
        answers = "<answer>cba</answer>", "<answer>abc</answer>"
        print([verdict.score for verdict in pool.judge_all([(problem, a) for a in answers])])
"""
VERILOOP = ("-m", "veriloop.stages.cli")
PROMISES = {  # what: the arguments of Python, and a part of what it prints
    "version": ((*VERILOOP, "--version"), ""),
    "verify": ((*VERILOOP, "verify", "--verifier", "math_answer", "responses.jsonl"), ": 1.0"),
    "verifier ls": ((*VERILOOP, "verifier", "ls"), "countdown"),
    "verifier new": ((*VERILOOP, "verifier", "new", "parity", "--folder", "mine"), "next: "),
    "verifier check": (
        (*VERILOOP, "verifier", "check", "parity", "--plugin", "mine/parity.py"),
        "latency",
    ),
    **{
        f"verifier check {name}": ((*VERILOOP, "verifier", "check", name), "latency")
        for name in CHECKED
    },
    "recipes ls": ((*VERILOOP, "recipes", "ls"), "tiny/zero"),
    "help": ((*VERILOOP, "base", "--help"), "--optimizer.learning-rate"),
    "dry run": ((*VERILOOP, "zero", "tiny/zero", "--dry-run"), "run folder"),
    "service and client": (("served.py",), "[1.0, 0.0]"),
    "adapters": (("-c", "".join(f"import veriloop.verifiers.adapters.{n};" for n in ADAPTERS)), ""),
    **{
        f"examples/{name}": ((str(ROOT / "examples" / name),), "1.0")
        for name in ("service.py", "verl_reward.py", "openrlhf_reward.py")
    },
}


def try_all(python: Path, folder: Path) -> int:
    """Print a line per promise, tried in the folder; returns how many are broken."""
    row = {"gold": r"\frac12", "response": r"\boxed{0.5}"}
    (folder / "responses.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "served.py").write_text(SERVED)
    broken = 0
    for what, (words, part) in PROMISES.items():
        done = subprocess.run(
            [python, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        kept = done.returncode == 0 and part in done.stdout and "Traceback" not in done.stderr
        broken += not kept
        print(f"{what:28} {'ok' if kept else 'BROKEN'}", flush=True)
        if not kept:
            print("\n".join((done.stdout + done.stderr).splitlines()[-5:]), file=sys.stderr)
    print(f"{len(PROMISES) - broken} of {len(PROMISES)} hold")
    return broken


def environment(home: Path, version: str, *words: str) -> Path:
    """The interpreter of a new environment with this checkout, for whose installation uv gets
    these words; prints what is in it."""
    if not shutil.which("uv"):
        sys.exit("uv is not on the path; `pip install uv` installs it")
    python, source = home / "bin/python", home / "source"
    subprocess.run(["uv", "venv", "-q", "--python", version, home], check=True)
    shutil.copytree(ROOT / "src", source / "src")  # building in place leaves a folder behind
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    install = ["uv", "pip", "install", "-q", "--no-config", "--python", python]
    subprocess.run([*install, *words, source], check=True)
    subprocess.run(["uv", "pip", "freeze", "--python", python], check=True)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="an empty folder to work in")
    parser.add_argument("--lowest", action="store_true", help="with the lowest versions")
    parser.add_argument("--beside", default="", help="another package, as in trl==1.16.0")
    parser.add_argument("--python", default="3.11", help="version of a new environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        python = Path(sys.executable)
        if options.lowest or options.beside:
            words = ["--resolution", "lowest-direct"] if options.lowest else []
            words += [options.beside] if options.beside else []
            python = environment(Path(temporary) / "environment", options.python, *words)
        return int(try_all(python, folder) > 0)


if __name__ == "__main__":
    sys.exit(main())
