"""Says at the end of a run which optional parts of this machine the tests really exercised."""

import importlib.util
import os

import pytest

OPTIONAL = {"vllm": lambda: importlib.util.find_spec("vllm") is not None}
PARTS_TO_COME = "docker, namespaces, browser: nothing in the project uses them yet"

_exercised = dict.fromkeys(OPTIONAL, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        for part in OPTIONAL:
            _exercised[part] += part in report.keywords


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("optional parts")
    for part, present in OPTIONAL.items():
        here = "installed" if present() else "not installed"
        terminalreporter.line(f"{part}: {here}, exercised by {_exercised[part]} passing tests")
    terminalreporter.line(PARTS_TO_COME)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In a full run a part that can be tested here and was not is a failure."""
    if not os.environ.get("VERILOOP_FULL_RUN") or hasattr(session.config, "workerinput"):
        return
    idle = [part for part, present in OPTIONAL.items() if present() and not _exercised[part]]
    if idle and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\noptional parts that are here were not exercised: {', '.join(idle)}")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory):
    """Folder of an untrained model by (tied, more end ids): a real checkpoint, heads of size 32."""
    from random import Random

    import torch

    from data import corpus, tokenizer
    from pipeline.config import TinyModel
    from pipeline.policy import save_policy
    from stages.base import untrained

    made = {}

    def make(*, tied: bool = False, ends: tuple[int, ...] = ()):
        if (tied, ends) not in made:
            random = Random(0)
            documents = (corpus.document(random, corpus.Mix()) for _ in range(600))
            spelling = tokenizer.train(documents, 400)
            torch.manual_seed(0)
            shape = TinyModel(
                hidden=64, layers=2, heads=2, feed_forward=96, vocabulary=400, tied=tied
            )
            model = untrained(shape, spelling)
            with torch.no_grad():  # sharper than at birth, so that mistakes show
                for parameter in model.parameters():
                    if parameter.ndim == 2:
                        parameter.mul_(4)
            model.generation_config.eos_token_id = [spelling.eos_token_id, *ends]
            folder = tmp_path_factory.mktemp("tiny")
            save_policy(model, spelling, folder)
            made[tied, ends] = folder
        return made[tied, ends]

    return make
