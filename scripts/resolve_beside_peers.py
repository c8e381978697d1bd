"""Resolve veriloop's core and extras beside each peer trainer, with uv.

    python scripts/resolve_beside_peers.py [--python 3.11]

One line per combination: the versions of the packages on which trainers usually disagree, or uv's
explanation of why there is no solution. Exit code 1 when the core alone fails to resolve beside
any peer. Nothing is installed. Needs `uv` and a package index.
"""

import argparse
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = ("verl==0.9.1", "openrlhf==0.11.2", "trl==1.16.0", "verifiers==0.4.0")
REPORTED = ("transformers", "torch", "fastapi", "math-verify", "pydantic", "httpx2")


def requirements(extra: str) -> list[str]:
    """The core's requirements, with those of an extra unless it is ""."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])


def resolve(lines: list[str], python: str) -> tuple[bool, str]:
    """Whether the lines resolve together, and the reported versions or the reason."""
    command = ["uv", "pip", "compile", "-q", "--no-header", "--no-annotate", "--no-config"]
    done = subprocess.run(
        [*command, "--python-version", python, "-"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return False, " ".join(done.stderr.split())[:400]
    pins = dict(line.split("==") for line in done.stdout.split() if "==" in line)
    return True, ", ".join(f"{name} {pins[name]}" for name in REPORTED if name in pins)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default="3.11", help="version of Python to resolve for")
    python = parser.parse_args().python
    if not shutil.which("uv"):
        sys.exit("uv is not on the path; `pip install uv` installs it")
    failures = 0
    for extra in ("", "train"):
        for peer in ("", *PEERS):
            solved, message = resolve(requirements(extra) + [peer] * bool(peer), python)
            name = f"veriloop[{extra}]" if extra else "veriloop"
            print(
                f"{name:16} {peer or 'alone':18} {'ok' if solved else 'NONE'}  {message}",
                flush=True,
            )
            failures += not solved and not (extra and peer)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
