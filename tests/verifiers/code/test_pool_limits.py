"""A program has the same limits in a worker of the pool as in the sandbox itself."""

import resource
import subprocess
import sys

import pytest

from veriloop.data.problem import Problem
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import probe
from veriloop.verifiers.pool import VerifierPool

LIMITS = {"cpu_s": 10.0, "wall_s": 60.0, "memory_mb": 3000}
LARGE = {  # each needs more address space than a worker of the pool may have
    "python": "data = bytearray(2300 << 20)\nprint(len(data) >> 20)",
    "javascript": "const pages = 16 << 4;\n"
    "const memory = new WebAssembly.Memory({ initial: pages, maximum: 65536 });\n"
    "console.log(memory.buffer.byteLength ? 2300 : 0);",
    "cpp": "#include <cstdio>\n#include <cstdlib>\n"
    'int main() { printf("%d\\n", malloc(2300L << 20) ? 2300 : 0); }',
}
SEEN = (  # in steps of 256 MB, since the zygotes' own sizes differ a little
    "import resource, signal\n"
    "print(*[[round(n / 2**28) for n in resource.getrlimit(k)] for k in (0, 2, 5, 9)])\n"
    "print(*[resource.getrlimit(k) for k in (1, 3, 4, 7)])\n"
)
SEEN += "print(signal.getsignal(2), signal.getsignal(15), signal.pthread_sigmask(0, []))"


@pytest.fixture(scope="module")
def pool():
    if probe().tier != 1:
        pytest.skip(str(probe()))
    with VerifierPool(workers=1, limit_s=60.0, memory_mb=2048) as pool:
        yield pool


def judged(pool, language, source, expected):
    reference = {
        "tests": [{"stdin": "", "expected_stdout": expected}],
        "language": language,
        "limits": LIMITS,
    }
    problem = Problem(id="x/0", prompt="", verifier="code_tests", reference=reference)
    (verdict,) = pool.judge_all([(problem, f"```{language}\n{source}\n```")])
    if verdict.status == "error" and "cannot run here" in verdict.detail:
        pytest.skip(verdict.detail)
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("language", LARGE)
def test_a_program_may_use_the_memory_of_its_limits_and_not_of_the_worker(pool, language):
    verdict = judged(pool, language, LARGE[language], "2300")
    assert verdict.score == 1.0, verdict


@pytest.mark.slow
def test_a_program_in_the_pool_inherits_what_it_does_in_the_sandbox_itself(pool):
    with NamespaceExecutor(slots=1) as executor:
        direct = executor.run(Program(source=SEEN), Stdin(), Limits(**LIMITS))
    assert direct.ended == "ok", direct
    assert judged(pool, "python", SEEN, direct.stdout.decode()).score == 1.0


def test_the_memory_limit_of_a_program_holds_in_the_pool(pool):
    verdict = judged(pool, "python", "print(len(bytearray(3200 << 20)))", "3355443200")
    assert verdict.score == 0.0 and "memory" in verdict.detail


@pytest.mark.slow
def test_a_worker_is_still_bounded_itself(pool):
    done = subprocess.run(
        [sys.executable, "-c", "from veriloop.verifiers.worker import _bound_memory as b\n"
         "b(1 << 30)\nbytearray(2 << 30)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.strip().endswith("MemoryError")


@pytest.mark.slow
def test_a_hard_limit_of_the_host_below_that_of_a_program_is_refused_and_not_a_wrong_answer():
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from veriloop.verifiers.registry import judge\n"
        "from veriloop.data.problem import Problem\n"
        "tests = [{'stdin': '', 'expected_stdout': '1'}]\n"
        "reference = {'tests': tests, 'limits': {'memory_mb': 2000}}\n"
        "problem = Problem(id='x/0', prompt='', verifier='code_tests', reference=reference)\n"
        "verdict = judge(problem, '```python\\nprint(1)\\n```')\n"
        "print(verdict.status, verdict.score, verdict.detail)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    if resource.getrlimit(resource.RLIMIT_AS)[1] != resource.RLIM_INFINITY:
        pytest.skip("the address space of this process is limited")
    assert done.stdout.startswith("error None"), done
    assert "memory_mb=2000" in done.stdout and "ulimit -Hv" in done.stdout
