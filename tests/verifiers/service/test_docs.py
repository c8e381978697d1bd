"""Every curl of docs/service.md, run as it is written."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "service.md").read_text()
BLOCKS = [block for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "curl" in block]


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_examples_do_what_the_page_says(service):
    said = []
    for block in BLOCKS:
        ran = subprocess.run(
            ["bash", "-e", "-c", block.replace("curl -", "curl -fw '\\n' -")],
            env=os.environ | {"URL": service.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, block + ran.stdout + ran.stderr
        said.append(ran.stdout)
    batch, stream, health, dialects = said
    scores = [verdict["score"] for verdict in json.loads(batch)["verdicts"]]
    assert scores == [1.0, 0.0]
    lines = [json.loads(line) for line in stream.split("\n") if line]
    assert lines[0]["score"] == 1.0 and lines[1]["done"] == 1
    assert "alive" in health and "veriloop_verdicts_total" in health
    rewards, score = dialects.split("\n")[:2]
    assert json.loads(rewards)["rewards"] == [1.0] and json.loads(score) == 1.0


def test_every_route_and_flag_of_the_page_is_there(service):
    from veriloop.stages.commands.serve import Options
    from veriloop.verifiers.service.middleware import Bounds

    routes = {route.path for route in service.app.routes}
    for path in re.findall(r"`(?:POST |GET )?(/[a-z_/0-9]+)", PAGE):
        assert path in routes, path
    known = {name.replace("_", "-") for name in Options.__dataclass_fields__}
    known |= {"bounds." + name.replace("_", "-") for name in Bounds.__dataclass_fields__}
    for flag in re.findall(r"--([a-z]+[a-z.-]*)", PAGE):
        theirs = flag in ("rm-type", "rm-url", "reward.remote", "verifier-service")
        assert theirs or flag in known, flag
