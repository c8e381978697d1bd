"""The mutator makes the mutants it should, and a mutant that nobody notices is reported."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import mutation
from benchmarks.mutants import Mutant, mutants
from veriloop.pipeline.runs import provenance as identity

SCRIPT = ("benchmarks/mutation.py",)
WITHOUT_TORCH = (
    "-c",
    "import sys; from benchmarks import mutation; mutation.PRELOAD = ('hypothesis',); "
    "mutation.QUICK = 2; "
    "sys.exit(mutation.main())",
)
ROOT = Path(__file__).parent.parent.parent


def changes(source):
    return {(m.operator, m.before, m.after) for m in mutants("x.py", source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("y = a + b", {("swap the operation", "a + b", "(a - b)")}),
        ("y = a / b", {("swap the operation", "a / b", "(a * b)")}),
        ("y += b", {("swap the operation", "y += b", "y -= b")}),
        ("y = a & b", {("swap the operation", "a & b", "(a | b)")}),
        (
            "y = a < b",
            {("swap the comparison", "a < b", f"(a {sign} b)") for sign in ("<=", ">")},
        ),
        ("y = a == b", {("swap the comparison", "a == b", "(a != b)")}),
        ("y = a and b", {("swap and/or", "a and b", "(a or b)")}),
        ("y = -a", {("drop the sign", "-a", "(a)")}),
        ("y = ~a", {("drop the sign", "~a", "(a)")}),
        ("y = 0.5", {("add one", "0.5", "(1.5)")}),
        ("y = True", {("flip the flag", "True", "(False)")}),
        ("y = x.amax", {("swap min/max", "x.amax", "(x.amin)")}),
        ("y = torch.minimum", {("swap min/max", "torch.minimum", "(torch.maximum)")}),
        ("y = 'amin'", {("swap min/max", "'amin'", "('amax')")}),
        ("y = x.detach()", {("drop detach", "x.detach()", "(x)")}),
        ("y = torch.exp(x)", {("drop exp", "torch.exp(x)", "(x)")}),
        ("y = x.masked_fill(m, v)", {("drop masked_fill", "x.masked_fill(m, v)", "(x)")}),
        (
            "y = torch.where(c, a, b)",
            {("choose always", "torch.where(c, a, b)", f"({x})") for x in "ab"},
        ),
        ("y = a if c else b", {("choose always", "a if c else b", f"({x})") for x in "ab"}),
        ("y = f(x, correction=c)", {("drop correction=", "f(x, correction=c)", "(f(x))")}),
        (
            "y = x.f(min=a)",
            {
                ("drop min=", "x.f(min=a)", "(x.f())"),
                ("swap min/max", "x.f(min=a)", "(x.f(max=a))"),
            },
        ),
        (
            "y = x[1:]",
            {("shift the slice", "1:", ":-1"), ("add one", "1", "(2)")},
        ),
        (
            "y = x[:-1]",
            {
                ("shift the slice", ":-1", "1:"),
                ("drop the sign", "-1", "(1)"),
                ("add one", "1", "(2)"),
            },
        ),
        ("y = mask_RT", {("let all through", "mask_RT", "(mask_RT | True)")}),
        ("f(x)", {("drop the call", "f(x)", "pass")}),
        ("if a:\n    y = b", {("negate the condition", "a", "(not (a))")}),
    ],
)
def test_each_operator_on_the_smallest_source_it_applies_to(source, expected):
    assert changes(source) == expected


def test_a_product_with_a_mask_also_loses_the_mask_on_either_side():
    for source in ("y = x * mask_RT", "y = mask_RT * x"):
        dropped = {m.after for m in mutants("x.py", source) if m.operator == "drop the mask"}
        assert dropped == {"(x)"}


@pytest.mark.parametrize(
    "untouched",
    [
        '"""The sum a + b of 2."""',
        "import torch as t",
        "raise ValueError(f'{a + 1} and -b')",
        "assert a < 1, 'not -1'",
        "if not a > 0:\n    first = a + 1\n    raise ValueError(first)",
        "y: Literal[1, 2]",
        "@dataclass(frozen=True)\nclass C:\n    x: int",
        "def f(x: Literal[1]) -> Literal[2]:\n    return x",
        "y = zip(a, b, strict=True)",
    ],
)
def test_what_is_no_arithmetic_is_left_alone(untouched):
    assert changes(untouched) == set()


def test_the_branch_after_a_refusal_is_mutated_and_the_refusal_is_not():
    source = "if a < 0:\n    raise ValueError(a + 1)\nelse:\n    y = a + b"
    assert changes(source) == {("swap the operation", "a + b", "(a - b)")}


def test_results_are_negated_where_they_are_numbers_and_only_there():
    def negated(body, returns):
        source = f"def f(a, b) -> {returns}:\n    return {body}"
        return {m.after for m in mutants("x.py", source) if m.operator == "negate the result"}

    assert negated("a", "Tensor") == {"(-(a))"}
    assert negated("a, b, None", "tuple[Tensor, Tensor, None]") == {"(-(a))", "(-(b))"}
    assert negated("*a, b", "tuple[Tensor, ...]") == {"(-(b))"}
    assert negated("a, clipped_low", "tuple[Tensor, Tensor]") == {"(-(a))"}
    assert negated("a < b", "Tensor") == negated("(a) & (b)", "Tensor") == set()
    assert negated("a", "str") == set()
    inner = "def f(a) -> float:\n    def g() -> str:\n        return a\n    return g"
    assert [m.line for m in mutants("x.py", inner) if m.operator == "negate the result"] == [4]


def test_a_mutant_changes_its_own_place_only_and_knows_the_line():
    source = "# größer\nx = '½'; y = (a + b) * c\n\nz = -(\n    d\n)\n"
    found = mutants("x.py", source)
    assert [(m.line, m.operator) for m in found] == [
        (2, "swap the operation"),
        (2, "swap the operation"),
        (4, "drop the sign"),
    ]
    assert found[0].source == source.replace("(a + b) * c", "((a + b) / c)")
    assert found[1].source == source.replace("(a + b)", "((a - b))")
    assert found[2].source == source.replace("-(\n    d\n)", "(d)")


def test_no_two_mutants_are_the_same_and_none_is_the_original():
    source = (ROOT / "pipeline/losses/policy_gradient.py").read_text()
    sources = [m.source for m in mutants("x.py", source)]
    assert len(sources) == len({*sources, source}) - 1 > 30


def tree(root, files):
    """A checkout with these files: `veriloop.pipeline` is its folder `pipeline`."""
    own = {"pyproject.toml": "[tool.pytest.ini_options]\n", "src/veriloop/__init__.py": ""}
    for path, source in {**own, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(source)
    (root / "src/veriloop/pipeline").symlink_to("../../pipeline")
    return root


def run(root, *arguments, before=WITHOUT_TORCH):
    command = [sys.executable, *before, "--root", root, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)


HALF = "def half(x: float) -> float:\n    return x / 2\n"
WELL_TESTED = (
    "from veriloop.pipeline.losses.{0} import half\n\ndef test_it():\n    assert half(6) == 3\n"
)
BADLY_TESTED = (
    "from veriloop.pipeline.losses.{0} import half\n\ndef test_it():\n    assert half(0) == 0\n"
)


@pytest.mark.slow
def test_survivors_are_reported_with_place_and_difference_and_fail_the_run(tmp_path):
    root = tree(
        tmp_path / "tree",
        {
            "pipeline/__init__.py": "",
            "pipeline/losses/__init__.py": "",
            "pipeline/losses/good.py": HALF,
            "pipeline/losses/bad.py": HALF,
            "tests/pipeline/losses/test_good.py": WELL_TESTED.format("good"),
            "tests/pipeline/losses/test_bad.py": BADLY_TESTED.format("bad"),
        },
    )
    done = run(root, "--json", tmp_path / "result.json")
    assert done.returncode == 1, done.stdout + done.stderr
    written = json.loads((tmp_path / "result.json").read_text())
    result = written["results"]
    assert written["failed"] == result["survivors"] and written["git"] == identity.git(ROOT)
    good, bad = (
        result["per_file"]["pipeline/losses/good.py"],
        result["per_file"]["pipeline/losses/bad.py"],
    )
    assert good == {"mutants": 3, "killed": 3} and bad == {"mutants": 3, "killed": 0}
    assert (result["mutants"], result["killed"], len(result["survivors"])) == (6, 3, 3)
    assert "survived pipeline/losses/bad.py:2: swap the operation\n" in done.stdout
    assert "-    return x / 2\n    +    return (x * 2)" in done.stdout
    assert not any("good.py" in survivor for survivor in result["survivors"])
    assert (root / "pipeline/losses/bad.py").read_text() == HALF
    only = run(root, "--files", "pipeline/losses/good.py", "--jobs", "1", before=SCRIPT)
    assert (
        only.returncode == 0
        and "3 of 3 mutants killed, 0 of these by tests that hung" in only.stdout
    )
    quick = run(root, "--files", "pipeline/losses/good.py", "--quick")
    assert quick.returncode == 0 and "2 of 2 mutants killed" in quick.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "complaint"),
    [
        (
            WELL_TESTED.format("one").replace("== 3", "== 4"),
            "do not pass without a mutant (exit 1)",
        ),
        ("def test_it():\n    assert True\n", "and not the copy in"),
        (
            WELL_TESTED.format("one") + "    done.append(1)\n\ndone = []\n\n"
            "def test_after_it():\n    assert done\n",
            "do not pass without a mutant, in reverse order (exit 1)",
        ),
        ("", "do not pass without a mutant (exit 5)"),
        (None, "its tests, tests/pipeline/losses/test_one.py"),
    ],
)
def test_tests_that_could_not_judge_a_mutant_stop_the_run(tmp_path, test, complaint):
    files = {"pipeline/__init__.py": "", "pipeline/losses/one.py": HALF}
    if test is not None:
        files["tests/pipeline/losses/test_one.py"] = test
    done = run(tree(tmp_path, files))
    assert done.returncode == 1 and complaint in done.stderr and "killed" not in done.stdout


@pytest.mark.slow
def test_quick_tests_judge_a_mutant_before_slow_ones(tmp_path):
    log = tmp_path / "log"
    test = (
        "import pytest\nfrom pathlib import Path\n"
        "from veriloop.pipeline.losses.one import half\n\n"
        "def judged(order):\n    assert half(6) == 3\n"
        f"    Path({str(log)!r}).open('a').write(order)\n\n"
        "@pytest.mark.slow\ndef test_slow():\n    judged('last')\n\n"
        "def test_quick():\n    judged('first ')\n"
    )
    files = {
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['slow: of seconds']\n",
        "pipeline/__init__.py": "",
        "pipeline/losses/one.py": HALF,
        "tests/pipeline/losses/test_one.py": test,
    }
    done = run(tree(tmp_path / "tree", files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert log.read_text() == "first lastlastfirst "  # of the tree without a mutant, in both orders


@pytest.mark.slow
def test_the_test_that_noticed_a_mutant_judges_the_next_one_first(tmp_path):
    log = tmp_path / "log"
    test = (
        "import pytest\nfrom pathlib import Path\n"
        "from veriloop.pipeline.losses.one import half\n\n"
        f"def test_before():\n    Path({str(log)!r}).open('a').write('before ')\n\n"
        "@pytest.mark.parametrize('x', [0, 6], ids=['a zero', 'a number'])\n"
        "def test_half(x):\n    assert half(x) == x // 2\n"
    )
    files = {
        "pipeline/__init__.py": "",
        "pipeline/losses/one.py": HALF,
        "tests/pipeline/losses/test_one.py": test,
    }
    done = run(tree(tmp_path / "tree", files), "--jobs", "1")
    assert "3 of 3 mutants killed" in done.stdout, done.stdout + done.stderr
    # without a mutant in both orders, and for the first of three
    assert log.read_text() == "before before before "


def test_the_failed_test_is_read_from_the_output_without_its_parameters():
    lines = "F\nFAILED tests/test_a.py::test_b[x - y] - assert 1 == 2\n1 failed in 0.1s\n"
    assert mutation.noticed_by(lines) == "tests/test_a.py::test_b"
    assert mutation.noticed_by("ERROR tests/test_a.py - SyntaxError\n") is None


def test_tests_past_their_time_are_ended_and_the_mutant_is_printed_as_noticed(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "p.py").write_text("a + b\n")
    mutant = Mutant(
        path="p.py", line=1, operator="swap", before="a + b", after="a - b", source="a - b\n"
    )
    job = mutation.Job(path="p.py", mutant=mutant)
    codes = []

    def run_all(root, jobs, workers, judged):
        child = subprocess.Popen(["sleep", "60"], start_new_session=True)
        for since in (0, mutation.LIMIT_S + 1):
            began = time.monotonic() - since
            running = mutation.Running(job=job, tree=tmp_path, started=began)
            codes.append(mutation.finished(child.pid, running))
        child.wait()
        judged(jobs[0], codes[-1], "")

    monkeypatch.setattr(mutation, "run_all", run_all)
    judged = mutation.judge(tmp_path, [mutant], 1, mutation.Judged(None, tmp_path))
    assert judged == ([], [mutant])
    assert codes == [None, mutation.HUNG]
    assert capsys.readouterr().out.startswith("hung, and so noticed, p.py:1: swap\n")


def test_only_mutants_whose_code_or_tests_changed_are_judged_again(tmp_path, monkeypatch):
    files = {
        "pyproject.toml": "", "pipeline/p.py": "a + b\n", "tests/conftest.py": "",
        "tests/pipeline/test_p.py": "from tests.pipeline.test_q import CASES\n",
        "tests/pipeline/test_q.py": "", "tests/pipeline/test_other.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    killed, survivor, third = (
        Mutant(
            path="pipeline/p.py", line=1, operator="swap", before="a + b", after=after, source=after
        )
        for after in ("a - b\n", "a * b\n", "a / b\n")
    )
    asked = []

    def run_all(root, jobs, workers, judged):
        for job in jobs:
            asked.append(job.mutant)
            judged(job, mutation.PASSED if job.mutant is survivor else mutation.FAILED, "")

    def again(*chosen):
        asked.clear()
        kept = mutation.Judged(tmp_path / "kept", tmp_path)
        assert mutation.judge(tmp_path, chosen, 1, kept) == ([survivor], [])
        return asked

    monkeypatch.setattr(mutation, "run_all", run_all)
    assert again(killed, survivor) == [killed, survivor]
    with (tmp_path / "kept/judged.jsonl").open("a") as kept:
        kept.write('\n{"mutant": "c0f')  # killed as it wrote
    assert again(killed, survivor, third) == [third]
    assert again(killed, survivor, third) == []
    for name in files:
        with (tmp_path / name).open("a") as file:
            file.write("# another line\n")
        assert again(killed, survivor) == ([] if "other" in name else [killed, survivor]), name
    monkeypatch.setattr(mutation, "versions", lambda: {"python": "4"})
    assert again(killed, survivor) == [killed, survivor]


def test_a_mutant_past_its_time_is_judged_again(tmp_path, monkeypatch):
    (tmp_path / "p.py").write_text("a + b\n")
    (tmp_path / "pyproject.toml").touch()
    mutant = Mutant(
        path="p.py", line=1, operator="swap", before="a + b", after="a - b", source="a - b\n"
    )
    codes = [mutation.HUNG, mutation.PASSED]

    def run_all(root, jobs, workers, judged):
        judged(jobs[0], codes.pop(0), "")

    monkeypatch.setattr(mutation, "run_all", run_all)
    for judged in (([], [mutant]), ([mutant], [])):
        kept = mutation.Judged(tmp_path, tmp_path)
        assert mutation.judge(tmp_path, [mutant], 1, kept) == judged


def test_mutants_whose_tests_hung_are_killed_and_counted_apart(tmp_path):
    (tmp_path / "p.py").write_text("a + b\n")
    killed, hung, survivor = (
        Mutant(path="p.py", line=1, operator="swap", before="a + b", after=after, source=after)
        for after in ("a - b\n", "a * b\n", "a / b\n")
    )
    result = mutation.counted(tmp_path, [killed, hung, survivor], [survivor], [hung], [])
    assert (result["mutants"], result["killed"]) == (3, 2)
    assert result["per_file"] == {"p.py": {"mutants": 3, "killed": 2}}
    assert result["hung"] == [mutation.difference(tmp_path, hung)]
    last = mutation.summary(tmp_path, result, []).splitlines()[-1]
    assert last == "2 of 3 mutants killed, 1 of these by tests that hung"


def test_a_stale_entry_of_the_equivalent_mutants_is_an_error(monkeypatch):
    mutant = Mutant(path="p.py", line=1, operator="", before="a + b", after="(a - b)", source="")
    entry = mutation.Equivalent(path="p.py", before="a + b", after="(a - b)", reason="b is 0")
    monkeypatch.setattr(mutation, "EQUIVALENT", (entry,))
    assert mutation.excluded([mutant], ["p.py"]) == [(mutant, entry)]
    assert mutation.excluded([], ["other.py"]) == []
    with pytest.raises(SystemExit, match="no mutant any more"):
        mutation.excluded([], ["p.py"])


@pytest.mark.slow
def test_the_files_of_this_project_can_be_mutated_and_their_equivalents_are_mutants():
    files = mutation.default_files(ROOT)
    found = [m for path in files for m in mutants(path, (ROOT / path).read_text())]
    assert {m.path for m in found} == set(files) == {f for f in files if (ROOT / f).exists()}
    assert {e.path for e in mutation.EQUIVALENT} <= set(files)
    assert len(mutation.excluded(found, files)) == len(mutation.EQUIVALENT)


def test_an_equivalent_mutant_may_be_told_by_its_line_from_others_like_it(monkeypatch):
    source = "def f(x, y):\n    return x[-1] + y[-1]\n"
    twins = [m for m in mutants("p.py", source) if m.operator == "add one"]
    assert [(m.before, m.after) for m in twins] == [("1", "(2)")] * 2
    entry = mutation.Equivalent(path="p.py", before="1", after="(2)", reason="", within="y[-(2)]")
    monkeypatch.setattr(mutation, "EQUIVALENT", (entry,))
    assert mutation.excluded(twins, ["p.py"]) == [(twins[1], entry)]


def test_the_tests_of_a_file_are_those_that_mirror_its_name():
    assert mutation.tests_of(ROOT, "pipeline/losses/kl.py") == ["tests/pipeline/losses/test_kl.py"]
    several = ("", "_clock", "_memory", "_system")
    assert mutation.tests_of(ROOT, "pipeline/training/measurements.py") == [
        f"tests/pipeline/training/test_measurements{part}.py" for part in several
    ]


def test_a_file_may_have_tests_of_other_names():
    names = ("test_generate.py", "test_prompt.py")
    assert mutation.tests_of(ROOT, "pipeline/rollouts/generate.py") == [
        f"tests/pipeline/rollouts/{name}" for name in names
    ]
    assert mutation.TESTED_BY.keys() <= set(mutation.default_files(ROOT))
    assert all((ROOT / tests[0]).exists() for tests in mutation.TESTED_BY.values())


def test_the_default_is_every_loss_and_what_is_around_them_where_it_exists(tmp_path):
    files = ("losses/kl.py", "losses/__init__.py", "rl/update.py", "rl/ptx.py")
    root = tree(tmp_path, {f"pipeline/{name}": "" for name in files})
    assert mutation.default_files(root) == ["pipeline/losses/kl.py", "pipeline/rl/update.py"]
