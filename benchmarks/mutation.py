"""Mutate the arithmetic one operator at a time and run its tests: a survivor is a gap in them.

    python benchmarks/mutation.py [--quick] [--json FILE] [--files FILE ...] [--jobs N]
                                  [--folder DIR]

Each mutant is tested in a temporary copy of the tree, by a child forked from this process, which
has imported torch once. Exits 1 when a mutant survives. With `--folder` no mutant is tested again
whose file, tests and all other code are as they were when it was.
"""

import difflib
import gc
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that it runs as a script as well as a module

from benchmarks.equivalents import EQUIVALENT, Equivalent  # noqa: E402
from benchmarks.mutants import KEYWORDS_LEFT, Mutant, mutants  # noqa: E402
from benchmarks.publish import arguments, publish  # noqa: E402
from veriloop.pipeline.runs.provenance import versions  # noqa: E402

FOLDERS = ("data", "sandbox", "verifiers", "pipeline", "stages", "recipes", "src", "tests")
PRELOAD = (
    *("numpy", "hypothesis", "hypothesis.strategies", "torch", "torch.testing"),
    "transformers.models.llama.modeling_llama",
)
OF_A_STEP = (
    *("config/kl_placement", "model/logprob", "model/packing"),
    *("rl/minibatches", "rl/estimator", "rl/objective", "rl/update"),
    *("rl/critic", "training/measurements", "training/optimizer"),
    *("rl/trust_region", "model/reference", "rollouts/grade", "rollouts/step_scores"),
    *("rl/natural_step", "rl/reward_checks", "preference/labelling"),
)
OF_CODE = ("compare", "outcome", "answer", "split/values", "tests")
OF_JUDGING = ("verifiers/math_answer", "verifiers/pool")
OF_SAMPLES = ("data/filters", "data/decontaminate", "pipeline/evaluation/statistics")
OF_HUB = ("load", "source", "sets", "code_rows", "reference_answers")
OF_DATA = ("sft_ids", *(f"hub/{name}" for name in OF_HUB))
OF_EVALUATION = (
    *("evaluation/evaluate", "evaluation/gains"),
    *("rollouts/generate", "rollouts/reward_terms"),
)
OF_RUNS = ("runs/atomic_write", "runs/hub_push", "runs/checkpoint_files", "runs/checkpoint")
OF_TUNING = (
    *("sft/rejection_sampling", "preference/objective"),
    *("sft/step", "sft/dataset", "sft/rewrite"),
    *("preference/reference_pass", "preference/step", "preference/logps", "preference/examples"),
    *("preference/pointwise", "preference/reward_training", "preference/reward_judge"),
    "preference/online",
)
OF_DISTILLATION = ("distill/logit_step", "distill/teacher_pass", "distill/on_policy")
OF_SAMPLING = tuple(f"sampling/{n}" for n in ("sync", "gap_history", "sampler", "torch_engine"))
ALSO = (
    *(
        f"pipeline/{n}.py"
        for n in (*OF_A_STEP, *OF_EVALUATION, *OF_RUNS, *OF_TUNING, *OF_SAMPLING, *OF_DISTILLATION)
    ),
    *(f"verifiers/code/{n}.py" for n in OF_CODE),
    *(f"data/{n}.py" for n in OF_DATA),
    *(f"{n}.py" for n in (*OF_JUDGING, *OF_SAMPLES)),
)
# Tests of files whose own do not mirror their name, or are not all: arguments of pytest.
TESTED_BY = {
    "data/hub/code_rows.py": ("tests/data/hub/test_load.py",),
    "data/hub/load.py": ("tests/data/hub/test_files.py",),
    "data/hub/sets.py": ("tests/data/hub/test_load.py",),
    "pipeline/sampling/torch_engine.py": (
        "tests/pipeline/sampling/test_contract.py",
        "tests/pipeline/sampling/test_static_engine.py",
    ),
    "pipeline/losses/divergence_tiles.py": ("tests/pipeline/losses/test_distillation.py",),
    "pipeline/rl/estimator.py": (
        "tests/pipeline/cluster/test_deal.py",
        "tests/stages/test_user_functions.py",
    ),
    "pipeline/rl/minibatches.py": (
        "tests/pipeline/rl/test_epochs.py",
        "tests/pipeline/cluster/test_deal.py",
    ),
    "pipeline/rl/objective.py": ("tests/stages/test_user_functions.py",),
    "pipeline/rl/update.py": ("tests/pipeline/rl/test_natural_step.py",),
    "pipeline/training/optimizer.py": ("tests/pipeline/training/test_moments.py",),
    "pipeline/rollouts/generate.py": ("tests/pipeline/rollouts/test_prompt.py",),
    "pipeline/runs/checkpoint_files.py": (
        "tests/pipeline/runs/test_checkpoint.py",
        "tests/pipeline/runs/test_checkpoint_killed.py",
    ),
    "pipeline/runs/checkpoint.py": ("tests/pipeline/runs/test_tensor_store.py",),
    "verifiers/math_answer.py": ("tests/verifiers/math/test_echo.py",),
    "verifiers/code/tests.py": ("tests/verifiers/code/test_soundness.py",),
}
NOT_HERE = ("vllm", "docker", "browser", "published", "trackers", "ray")  # markers
QUICK = 12  # mutants of a quick run
LIMIT_S = 120.0  # for the tests of one mutant: one that hangs counts as noticed
PASSED, FAILED, INTERRUPTED, USAGE, FOREIGN, HUNG = 0, 1, 2, 4, 90, 91  # pytest's, and ours
FAILED_TEST = re.compile(r"^FAILED (\S+?::.+?)(?: - |$)", re.M)
NOT_IMPORTED = "ImportError while loading conftest"  # how pytest tells of a USAGE that is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Tests to run on one tree. Without a mutant: on the unchanged tree."""

    path: str  # the file under test, relative to the root
    mutant: Mutant | None
    backwards: bool = False  # the tests in reverse order


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    job: Job
    tree: Path
    started: float  # monotonic seconds


def tests_of(root: Path, path: str) -> list[str]:
    """pipeline/rl/update.py -> tests/pipeline/rl/test_update.py, test_update_*.py beside it, and
    those of `TESTED_BY`."""
    folder, stem = Path("tests", path).parent, Path(path).stem
    more = sorted(file.name for file in (root / folder).glob(f"test_{stem}_*.py"))
    mirrored = [(folder / name).as_posix() for name in (f"test_{stem}.py", *more)]
    others = TESTED_BY.get(path, ())
    return [name for name in mirrored if not others or (root / name).exists()] + list(others)


def default_files(root: Path) -> list[str]:
    losses = sorted(p for p in (root / "pipeline/losses").glob("*.py") if p.name != "__init__.py")
    return [p.relative_to(root).as_posix() for p in losses] + [
        f for f in ALSO if (root / f).exists()
    ]


def copy_tree(root: Path, into: Path) -> Path:
    for name in FOLDERS:
        if (root / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(root / name, into / name, symlinks=True, ignore=ignore)
    shutil.copy(root / "pyproject.toml", into)
    return into


def preload() -> None:
    """Import what is slow to import, once, before the first fork."""
    os.environ["OMP_NUM_THREADS"] = "1"  # read by torch when it is imported
    for name in PRELOAD:
        importlib.import_module(name)
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    settings = importlib.import_module("hypothesis").settings
    phases = [p for p in settings().phases if p.name not in ("shrink", "explain")]
    settings.register_profile("unshrunk", phases=phases, database=None, deadline=None)
    gc.freeze()  # no child needs to walk, and so copy, what its parent holds


class _Order:
    """A plugin of pytest: the tests that are likely to notice a mutant run first.

    These are the ones that noticed other mutants of the file, the last first; then the quick ones.
    `backwards`: all of them in reverse.
    """

    def __init__(self, likely: Sequence[str], backwards: bool) -> None:
        self._places = {name: place for place, name in enumerate(likely)}
        self._backwards = backwards

    @pytest.hookimpl(wrapper=True)  # after tests/conftest.py has put slow files first
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        yield
        items.sort(key=self._key)
        if self._backwards:
            items.reverse()

    def _key(self, item: pytest.Item) -> tuple[int, bool]:
        place = self._places.get(function_of(item.nodeid), len(self._places))
        return place, item.get_closest_marker("slow") is not None


def function_of(test: str) -> str:
    """The test function of pytest's name for a test, which may have parameters."""
    return test.partition("[")[0]


def noticed_by(output: str) -> str | None:
    """The test function that failed first, of pytest's output; None if it names none."""
    match = FAILED_TEST.search(output)
    return function_of(match[1]) if match else None


def run_tests(tree: Path, job: Job, likely: Sequence[str]) -> int:
    """In the child: the exit code of the tests of the job's file, imported from `tree` and nowhere
    else, the `likely` ones first."""
    path = job.path
    os.chdir(tree)
    sys.dont_write_bytecode = True  # two mutants of one second and size would share a .pyc
    sys.path[:0] = [str(tree), str(tree / "src")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])  # of the processes that tests start
    for name in [name for name in sys.modules if name.split(".")[0] == "veriloop"]:
        del sys.modules[name]  # what the parent itself has imported
    importlib.invalidate_caches()
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--rootdir", str(tree)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported already
    options += ["-W", "ignore:unclosed scandir:ResourceWarning"]  # pytest's own, of two at a time
    options += ["--tb=line", "--hypothesis-profile=unshrunk"]
    options += ["--basetemp", str(tree / "made")]  # no other pytest cleans it
    options += ["-m", " and ".join(f"not {marker}" for marker in NOT_HERE)]
    options += ["-c", str(tree / "pyproject.toml"), *tests_of(tree, path)]
    code = int(pytest.main(options, plugins=[_Order(likely, job.backwards)]))
    loaded = sys.modules.get("veriloop." + path.removesuffix(".py").replace("/", "."))
    if code == PASSED and not str(getattr(loaded, "__file__", "")).startswith(str(tree)):
        print(f"{path}: the tests imported {loaded} and not the copy in {tree}")
        return FOREIGN
    return code


def start(tree: Path, job: Job, likely: Sequence[str]) -> int:
    """Fork a child that runs the job's tests, its output in the tree's `log`; its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = FOREIGN
    try:
        os.setsid()
        log = os.open(tree / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = run_tests(tree, job, likely)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        os._exit(code)


def finished(child: int, running: Running) -> int | None:
    """The exit code of a child, HUNG for one past its time; None while it runs."""
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else FAILED  # a mutant that crashes the interpreter is noticed
    if time.monotonic() - running.started < LIMIT_S:
        return None
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HUNG


def run_all(
    root: Path, jobs: Sequence[Job], workers: int, done: Callable[[Job, int, str], None]
) -> None:
    """Run every job, at most `workers` at a time; calls `done(job, exit code, output)` after
    each."""
    with ExitStack() as stack:
        free = [
            copy_tree(root, Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve())
            for _ in range(min(workers, len(jobs)))
        ]
        waiting, running = list(reversed(jobs)), dict[int, Running]()
        likely: dict[str, list[str]] = {}  # by file: what has noticed a mutant, the last first
        while waiting or running:
            while waiting and free:
                job, tree = waiting.pop(), free.pop()
                if job.mutant is not None:
                    (tree / job.path).write_text(job.mutant.source)
                child = start(tree, job, likely.get(job.path, ()))
                running[child] = Running(job=job, tree=tree, started=time.monotonic())
            for child, trial in list(running.items()):
                if (code := finished(child, trial)) is not None:
                    del running[child]
                    shutil.copy(root / trial.job.path, trial.tree / trial.job.path)
                    free.append(trial.tree)
                    output = (trial.tree / "log").read_text(errors="replace")
                    if test := noticed_by(output):
                        others = [t for t in likely.get(trial.job.path, ()) if t != test]
                        likely[trial.job.path] = [test, *others]
                    done(trial.job, code, output)
            time.sleep(0.01)


def check_baseline(root: Path, files: Sequence[str], workers: int) -> None:
    """Exit with the output of the tests unless every file passes them unmutated, in their order
    and in reverse: a mutant may be judged in another order, which is not to fail them."""
    for path in files:
        tests = tests_of(root, path)[0]
        if not (root / path).exists() or not (root / tests).exists():
            sys.exit(f"{path}: cannot be mutated without the file and its tests, {tests}")

    def passed(job: Job, code: int, output: str) -> None:
        if code != PASSED:
            how = f"without a mutant{', in reverse order' * job.backwards} (exit {code})"
            sys.exit(f"{job.path}: its tests do not pass {how}\n{output}")

    for backwards in (False, True):
        jobs = [Job(path=path, mutant=None, backwards=backwards) for path in files]
        run_all(root, jobs, workers, passed)


def excluded(candidates: Sequence[Mutant], files: Sequence[str]) -> list[tuple[Mutant, Equivalent]]:
    """The mutants listed as equivalent. Exits when an entry of the list matches nothing."""
    pairs = []
    for entry in (e for e in EQUIVALENT if e.path in files):
        mine = [
            m
            for m in candidates
            if (m.path, m.before, m.after) == (entry.path, entry.before, entry.after)
            and entry.within in "\n".join(m.source.splitlines()[m.line - 1 : m.line + 1])
        ]
        if not mine:
            sys.exit(f"EQUIVALENT lists {entry}, which is no mutant any more: take it out")
        pairs += [(m, entry) for m in mine]
    return pairs


class Judged:
    """Which mutants survived, kept in a folder as JSON lines.

    A verdict counts for the same mutant, the same tests of its file, and the same of everything
    else but tests of other files: code, recipes, helpers of tests, versions of packages.
    """

    def __init__(self, folder: Path | None, root: Path) -> None:
        """`folder`: None keeps nothing."""
        self._root, self._world, self._survived = root, "", dict[str, bool]()
        self._path = folder / "judged.jsonl" if folder is not None else None
        if self._path is None:
            return
        self._world = _world(root)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.is_file():
            for line in self._path.read_text().split("\n"):
                if line.endswith("}"):  # the last may be cut off
                    known = json.loads(line)
                    self._survived[known["mutant"]] = known["survived"]

    def of(self, mutant: Mutant) -> bool | None:
        """Whether it survived; None if it was not judged."""
        return self._survived.get(self._key(mutant))

    def add(self, mutant: Mutant, survived: bool) -> None:
        if self._path is not None:
            line = {"mutant": self._key(mutant), "survived": survived}
            with self._path.open("a") as file:
                file.write(f"\n{json.dumps(line)}")  # after a line that was cut off, too

    def _key(self, mutant: Mutant) -> str:
        tests = _with_imported(self._root, tests_of(self._root, mutant.path))
        parts = [self._world, mutant.path, mutant.source]
        parts += [(self._root / name).read_text() if (self._root / name).is_file() else name
                  for name in tests]  # fmt: skip
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _world(root: Path) -> str:
    """A hash of the packages' versions and of all files that a copy of the tree has, but tests."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    paths = [root / "pyproject.toml"]
    paths += [p for folder in FOLDERS for p in sorted((root / folder).rglob("*")) if p.is_file()]
    for path in paths:
        name = path.relative_to(root)
        hidden = any(part == "__pycache__" or part.startswith(".") for part in name.parts)
        if not hidden and not (name.parts[0] == "tests" and path.match("test_*.py")):
            digest.update(name.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _with_imported(root: Path, tests: Sequence[str]) -> list[str]:
    """The files of these tests, and those of tests that they import."""
    files = [name.split("::")[0] for name in tests]
    for name in files:  # which grows
        if (root / name).is_file():
            imported = re.findall(
                r"^from (tests[\w.]*\.test_\w+) import", (root / name).read_text(), re.M
            )
            files += [f for f in (f"{m.replace('.', '/')}.py" for m in imported) if f not in files]
    return files


def judge(
    root: Path, chosen: Sequence[Mutant], workers: int, kept: Judged
) -> tuple[list[Mutant], list[Mutant]]:
    """The mutants that survived, and those that were noticed only since their tests hung."""
    survivors, hung = [mutant for mutant in chosen if kept.of(mutant)], list[Mutant]()
    left = [mutant for mutant in chosen if kept.of(mutant) is None]

    def judged(job: Job, code: int, output: str) -> None:
        noticed = code in (FAILED, INTERRUPTED, HUNG) or (code == USAGE and NOT_IMPORTED in output)
        if not (noticed or code == PASSED):  # no tests found, wrong tree, wrong usage
            sys.exit(f"{job.path}: pytest could not judge a mutant (exit {code})\n{output}")
        if code == HUNG and job.mutant is not None:
            hung.append(job.mutant)
            print(f"hung, and so noticed, {difference(root, job.mutant)}", flush=True)
        if job.mutant is not None and code != HUNG:  # which a busy machine could be the cause of
            kept.add(job.mutant, code == PASSED)
        if code == PASSED and job.mutant is not None:
            survivors.append(job.mutant)
            print(f"survived {difference(root, job.mutant)}", flush=True)

    run_all(root, [Job(path=m.path, mutant=m) for m in left], workers, judged)
    place = attrgetter("path", "line")
    return sorted(survivors, key=place), sorted(hung, key=place)


def difference(root: Path, mutant: Mutant) -> str:
    old, new = (root / mutant.path).read_text().splitlines(), mutant.source.splitlines()
    lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[3:]
    return "\n    ".join([f"{mutant.path}:{mutant.line}: {mutant.operator}", *lines])


def table(per_file: dict[str, dict[str, int]]) -> str:
    width = max(map(len, per_file))
    rows = [f"{'file':{width}}  mutants  killed  share"]
    rows += [
        f"{path:{width}}  {n['mutants']:7}  {n['killed']:6}  {n['killed'] / n['mutants']:5.0%}"
        for path, n in per_file.items()
        if n["mutants"]
    ]
    return "\n".join(rows)


def counted(
    root: Path,
    chosen: Sequence[Mutant],
    survivors: Sequence[Mutant],
    hung: Sequence[Mutant],
    left_out: Sequence[tuple[Mutant, Equivalent]],
) -> dict[str, Any]:
    per_file: dict[str, dict[str, int]] = {}
    for mutant in chosen:
        counts = per_file.setdefault(mutant.path, {"mutants": 0, "killed": 0})
        counts["mutants"] += 1
        counts["killed"] += mutant not in survivors
    return {
        "mutants": len(chosen),
        "killed": len(chosen) - len(survivors),
        "hung": [difference(root, m) for m in hung],  # of the killed
        "survivors": [difference(root, m) for m in survivors],
        "per_file": per_file,
        "excluded": [asdict(e) | {"line": m.line} for m, e in left_out],
    }


def summary(
    root: Path, results: dict[str, Any], left_out: Sequence[tuple[Mutant, Equivalent]]
) -> str:
    lines = [table(results["per_file"])]
    for mutant, entry in left_out:
        kind = "untestable" if entry.untestable else "equivalent"
        lines.append(f"{kind} {difference(root, mutant)}\n    because {entry.reason}")
    lines += [f"not mutated: {keyword}=, {why}" for keyword, why in KEYWORDS_LEFT.items()]
    killed = f"{results['killed']} of {results['mutants']} mutants killed"
    return "\n".join([*lines, f"{killed}, {len(results['hung'])} of these by tests that hung"])


def main() -> int:
    options = arguments(
        __doc__ or "",
        files={"nargs": "+", "metavar": "FILE", "help": "relative to the root"},
        jobs={"type": int, "default": 2, "help": "mutants tested at a time"},
        root={"type": Path, "default": ROOT, "help": "the tree to test"},
        folder={"type": Path, "help": "where it is kept which mutants survived; default: nowhere"},
    )
    root, workers = options.root, options.jobs
    files = options.files or default_files(root)
    candidates = [m for path in files for m in mutants(path, (root / path).read_text())]
    left_out = excluded(candidates, files)
    chosen = [m for m in candidates if all(m is not other for other, _ in left_out)]
    if options.quick:
        chosen = random.Random(0).sample(chosen, min(QUICK, len(chosen)))
    preload()
    kept = Judged(options.folder, root)
    check_baseline(root, sorted({m.path for m in chosen if kept.of(m) is None}), workers)
    survivors, hung = judge(root, chosen, workers, kept)
    results = counted(root, chosen, survivors, hung, left_out)
    return publish(options, summary(root, results, left_out), results, failed=results["survivors"])


if __name__ == "__main__":
    sys.exit(main())
