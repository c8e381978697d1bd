"""The image of the whole package, built from the committed Dockerfile and used.

Its base has this machine's Python and the packages that it needs, so that nothing is downloaded.
"""

import os
import shutil
from contextlib import contextmanager

import pytest
from docker.errors import BuildError, ContainerError

from scripts.local_image import base_image, build, distributions
from veriloop.stages.commands.sandbox import SUITE

TRAINING = (
    "zero tiny/zero --start /model --output run --steps 1 --sampler.engine torch "
    "--rollout.prompts 4 --rollout.per-prompt 4 --rollout.max-tokens 8 --verifier-workers 1 "
    "--evaluation.problems 2 --evaluation.samples 1"
)
pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture
def image(engine):
    """Function: the base, and a function for what a command prints in a container of an image."""
    base, tag = f"veriloop-base:of-test-{os.getpid()}", f"veriloop:of-test-{os.getpid()}"

    def run(*words, **options):
        return engine.containers.run(
            tag, list(words), remove=True, network_mode="none", stderr=True, **options
        ).decode()

    @contextmanager
    def of(extras):
        with base_image(engine, base, distributions(extras)):
            build(engine, base, tag, EXTRAS=",".join(extras))
            try:
                yield base, run
            finally:
                engine.images.remove(tag, force=True)

    return of


@pytest.fixture
def mounted(tmp_path):
    """A small part of the suite, and responses, where a container reads them."""
    suite = shutil.copytree(SUITE, tmp_path / "work/suite")
    for name in ("manifest.jsonl", "honest_manifest.jsonl"):
        rows = (suite / name).read_text().splitlines(keepends=True)
        single = [row for row in rows if "run_after" not in row and "run_beside" not in row]
        (suite / name).write_text("".join(single[::30]))
    (tmp_path / "work/rows.jsonl").write_text('{"response": "\\\\boxed{5}", "gold": "5"}\n')
    return {str(tmp_path / "work"): {"bind": "/work", "mode": "ro"}}


def refuses_another_engine(engine, base):
    with pytest.raises(BuildError) as failed:
        build(engine, base, "veriloop:never", ENGINE="gpu")
    log = "".join(line.get("stream", "") for line in failed.value.build_log)
    assert "ENGINE=gpu: must be none, cpu or cuda" in log


def has_its_commands(veriloop, mounted):
    assert "veriloop [-h] [--version] COMMAND" in veriloop()
    assert veriloop("--version").startswith("veriloop ")


def verifies_responses(veriloop, mounted):
    told = veriloop("verify", "rows.jsonl", "--verifier", "math_answer", volumes=mounted)
    assert '"score": 1.0' in told


def plans_a_stage(veriloop, mounted):
    told = veriloop("zero", "tiny/zero", "--dry-run")
    assert "40 prompts x 16 responses = 640" in told and "run folder" in told


def holds_the_sandbox_where_it_may_have_namespaces(veriloop, mounted):
    words = ["sandbox", "check", "--suite", "suite", "--backend", "namespace"]
    told = veriloop(*words, volumes=mounted, security_opt=["seccomp=unconfined"])
    assert "sandbox: tier 1" in told and "honest programs: " in told


def says_why_where_it_may_not(veriloop, mounted):
    words = ["sandbox", "check", "--suite", "suite"]
    with pytest.raises(ContainerError, match="--security-opt seccomp=unconfined"):
        veriloop(*words, volumes=mounted)
    told = veriloop(*words, "--backend", "reduced", volumes=mounted)
    assert "sandbox: tier 2" in told and "honest programs: " in told


def holds_only_what_the_package_is_built_from(veriloop, mounted):
    code = "import os; print(os.listdir('/usr/src/veriloop'))"
    told = veriloop("-c", code, entrypoint="python3")
    assert "pyproject.toml" in told and "'docs'" not in told and "'.git'" not in told


def test_the_committed_dockerfile_builds_an_image_that_works(engine, image, mounted):
    """One test, as building takes most of the time and test processes would each build."""
    with image([]) as (base, veriloop):
        refuses_another_engine(engine, base)
        has_its_commands(veriloop, mounted)
        verifies_responses(veriloop, mounted)
        plans_a_stage(veriloop, mounted)
        holds_the_sandbox_where_it_may_have_namespaces(veriloop, mounted)
        says_why_where_it_may_not(veriloop, mounted)
        holds_only_what_the_package_is_built_from(veriloop, mounted)


def test_the_image_of_training_trains(image, tiny_checkpoint):
    model = {str(tiny_checkpoint()): {"bind": "/model", "mode": "ro"}}
    with image(["train"]) as (_, veriloop):
        said = veriloop(*TRAINING.split(), volumes=model)
    assert "checkpoint: run/zero/checkpoints/step_000001" in said and "report.html" in said
