"""What a case of an attack suite earns: the same judgement that a model's program gets."""

from sandbox.executor import Executor
from sandbox.suite import Case
from verifiers.code_reference import CodeReference
from verifiers.code_tests import judge_program


def grade(box: Executor, case: Case) -> tuple[float | None, str]:
    """The reward a case earns from the verifier of programs, and how its tests ended."""
    reference = CodeReference.read(
        {
            "tests": case.tests,
            "function": case.function,
            "language": case.language,
            "limits": _flat(case),
        }
    )
    verdict = judge_program(box, case.source, reference)
    return verdict.score, verdict.detail


def _flat(case: Case) -> dict[str, object]:
    return {name: getattr(case.limits, name) for name in case.limits.__slots__}
