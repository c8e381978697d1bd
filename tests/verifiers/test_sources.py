import pytest

import verifiers
from verifiers import sources
from verifiers.registry import all_verifiers, fingerprint
from verifiers.sources import source_files


def names(*modules):
    root = verifiers.__path__[0]
    return {str(path.relative_to(root)) for path in source_files(modules)}


def test_what_a_verifier_imports_decides_its_verdicts_too():
    assert {"code_tests.py", "compare.py", "code_outcome.py"} <= names("verifiers.code_tests")
    assert {"split/talk.py", "split_harness.py"} <= names("verifiers.code_tests")
    assert {"math/decide.py", "math/units.py", "statement.py"} <= names("verifiers.math_answer")


def test_another_verifiers_rules_do_not_count():
    assert "countdown.py" not in names("verifiers.number")
    assert "registry.py" not in names("verifiers.number", "verifiers.code_tests")


def test_an_import_inside_a_function_counts(tmp_path):
    lazy = tmp_path / "lazy.py"
    lazy.write_text("def f():\n    from verifiers import compare\n    import verifiers.answer\n")
    assert set(sources._imported(lazy)) == {"verifiers.compare", "verifiers.answer"}


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
