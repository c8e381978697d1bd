"""What every test of a language asks: run it here, or skip with the reason it is refused for."""

import pytest

from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.languages.table import LANGUAGES
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError, probe

LIMITS = Limits(cpu_s=4, memory_mb=256)


@pytest.fixture
def script(sandbox):
    """Run a program of a language on standard input, in each tier that can bound it."""

    def run(language, source, data=b"", limits=LIMITS):
        needs(sandbox, language)
        program = Program(source=source, language=language)
        return sandbox.run(program, Stdin(data=data), limits)

    return run


@pytest.fixture
def call(sandbox):
    """Call the function `f` of a JavaScript program, or another one of another language."""

    def run(source, *args, language="javascript", function="f", limits=LIMITS, **kwargs):
        needs(sandbox, language)
        asked = Call(function=function, args=args, kwargs=kwargs)
        return sandbox.run(Program(source=source, language=language), asked, limits)

    return run


def needs(executor, language):
    """Skips where the language is not to be had: by design in tier 2, or for want of a tool."""
    found = LANGUAGES[language]
    if found.needs_cgroup and (executor.tier == 2 or not probe().cgroup):
        pytest.skip(f"{found.title} needs tier 1 and a cgroup")
    try:
        executor.run(Program(source=found.sample, language=language), Stdin(), LIMITS)
    except SandboxUnavailableError as refusal:
        pytest.skip(str(refusal))
