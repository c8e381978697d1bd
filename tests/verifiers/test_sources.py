import pytest

from veriloop import verifiers
from veriloop.verifiers import sources
from veriloop.verifiers.registry import all_verifiers, fingerprint, get
from veriloop.verifiers.sources import source_files


def names(*modules):
    root = verifiers.__path__[0]
    return {str(path.relative_to(root)) for path in source_files(modules)}


def test_what_a_verifier_imports_decides_its_verdicts_too():
    assert {"code/tests.py", "code/compare.py", "code/outcome.py"} <= names(
        "veriloop.verifiers.code.tests"
    )
    assert {"code/split/proxies.py", "code/split/tests_side.py", "code/split_harness.py"} <= names(
        "veriloop.verifiers.code.tests", *get("code_tests").parts
    )
    assert {"math/decide.py", "math/units.py", "math/prose_answer.py"} <= names(
        "veriloop.verifiers.math_answer"
    )


def test_parts_are_named_by_modules_that_exist_wherever_the_process_runs():
    parts = {part for verifier in all_verifiers().values() for part in verifier.parts}
    assert parts and all(part.startswith("veriloop.") for part in parts), parts


def test_another_verifiers_rules_do_not_count():
    assert "countdown.py" not in names("veriloop.verifiers.number")
    assert "registry.py" not in names("veriloop.verifiers.number", "veriloop.verifiers.code.tests")


def test_an_import_inside_a_function_counts():
    lazy = (
        b"def f():\n    from veriloop.verifiers.code import compare\n"
        b"    import veriloop.verifiers.answer\n"
    )
    assert set(sources._imported(lazy)) == {
        "veriloop.verifiers.code",
        "veriloop.verifiers.code.compare",
        "veriloop.verifiers.answer",
    }


@pytest.mark.slow
def test_a_rule_that_changes_changes_every_fingerprint_that_rests_on_it(monkeypatch):
    before = fingerprint(all_verifiers())
    read = sources.Path.read_bytes

    def changed(path):
        return read(path) + b"# new" * (path.name == "compare.py" and path.parent.name != "math")

    monkeypatch.setattr(sources.Path, "read_bytes", changed)
    after = fingerprint(all_verifiers())
    assert {name for name in before if before[name] != after[name]} == {"code_tests"}


def test_a_module_without_source_is_refused():
    with pytest.raises(ValueError, match="module 'time' has no source"):
        source_files(["time"])
