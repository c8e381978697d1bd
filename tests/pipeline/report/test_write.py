"""The three files of a report: what they say, and that hostile text stays text."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from veriloop.data.problem import Problem
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report import write
from veriloop.pipeline.report.page import POLICY
from veriloop.pipeline.report.read_run import read_runs
from veriloop.pipeline.report.write import ANSWERS, write_report
from veriloop.verifiers.registry import judge
from veriloop.verifiers.verdict import Verdict

DOCS = Path(__file__).parents[3] / "docs"
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\x1b[31mred\x1b[0m\x1b]8;;http://x\x07link",
    "nul\0byte",
    "\u202eright to left\u2066",
    "x" * 1_000_000,
    "\ud83d half",
    "]]>&lt;&amp;\u2028\u2029",
    "| a | b |\n|---|---|\n# head",
]


class Seen(HTMLParser):
    """Tags, attributes and the text of scripts, as a browser would part them."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self._id = [], {}, None
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self._id = dict(attrs).get("id", "") if tag == "script" else None

    def handle_endtag(self, tag):
        self._id = None

    def handle_data(self, data):
        if self._id is not None:
            self.scripts[self._id] = self.scripts.get(self._id, "") + data


def parsed(folder):
    seen = Seen()
    seen.feed((folder / "report.html").read_text(encoding="utf-8"))
    return seen


@pytest.fixture
def hostile(run, answer):
    def groups(step):
        one = HOSTILE[step % len(HOSTILE)]
        verdicts = {"accuracy": Verdict(score=1.0, answer=one[:900], detail=one[:900])}
        return [[answer(one, prompt=one[:5000], problem=f"p/{step}", verdicts=verdicts)] * 2]

    recipe = {"name": "test/<b>", "note": HOSTILE[0]}
    return run(steps=len(HOSTILE), groups=groups, recipe=recipe)


@pytest.mark.slow
def test_hostile_text_ends_up_as_text(hostile):
    write_report(hostile)
    seen = parsed(hostile)
    assert not {"img", "b"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert seen.tags.count("script") == 1 + 1 + 1 + 1  # drawn, rollouts, plotly, our own
    told = json.loads(seen.scripts["rollouts-0"])
    texts = {a["text"] for s in told["train"] for g in s["groups"] for a in g["answers"]}
    assert HOSTILE[0] in texts and HOSTILE[2] in texts and HOSTILE[3] in texts
    [long] = [text for text in texts if text.startswith("xxx")]
    assert len(long) < 13_000 and "[… 988,000 characters …]" in long


@pytest.mark.slow
def test_nothing_in_the_page_can_end_its_script(hostile):
    write_report(hostile)
    text = (hostile / "report.html").read_text(encoding="utf-8")
    for script in re.findall(r'<script type="application/json"[^>]*>(.*)', text):
        body = script.removesuffix("</script>")
        assert "<" not in body and "\u2028" not in body
    assert "\0" not in text and "\ud83d" not in text


def test_the_policy_of_the_page_lets_nothing_in_or_out(run):
    folder = run(steps=1)
    write_report(folder)
    assert ("content", POLICY) in parsed(folder).attributes
    allowed = {part.split()[0]: part.split()[1:] for part in POLICY.split("; ")}
    assert allowed == {
        "default-src": ["'none'"],
        "script-src": ["'unsafe-inline'"],
        "style-src": ["'unsafe-inline'"],
        "img-src": ["data:"],
    }


def test_markdown_has_no_markup_of_a_model_in_it(hostile):
    write_report(hostile)
    text = (hostile / "report.md").read_text()
    assert "<img" not in text and "\x1b" not in text and "\u202e" not in text
    rows = [line for line in text.splitlines() if line.startswith("| zero")]
    assert rows and all(line.endswith(" |") for line in rows)


def test_it_is_small_and_asks_for_nothing_elsewhere(run):
    folder = run()
    write_report(folder)
    page = folder / "report.html"
    assert page.stat().st_size < 10e6
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!#)', text)


def test_with_less_room_for_answers_it_has_fewer_steps_of_them_but_one(run):
    folder = run()

    def shown(size):
        write_report(folder, answers_bytes=size)
        text = (folder / "report.html").read_text(encoding="utf-8")
        (data,) = re.findall(r'id="rollouts-0"[^>]*>(.*)</script>', text)
        parts = json.loads(data)
        return [len(parts[part]) for part in ("train", "held_out")]

    assert shown(ANSWERS)[0] > 1
    assert shown(0) == [1, min(shown(ANSWERS)[1], 1)]


def test_pictures_of_it_in_the_docs_are_small_and_shown():
    text = (DOCS / "report.md").read_text()
    pictures = sorted((DOCS / "images").glob("report-*.png"))
    assert pictures and all(path.stat().st_size <= 150_000 for path in pictures)
    assert all(f"(images/{path.name})" in text for path in pictures)


@pytest.mark.slow
def test_json_has_every_check_for_machines(run, as_json):
    folder = run(before={"pass@1": 0.2, "pass@1 95%": [0.1, 0.3]}, after={"pass@1": 0.7})
    write_report(folder)
    told = as_json(folder / "report.json")
    assert told["health"] == {"good": 11, "watch": 0, "bad": 0, "unknown": 1}
    [reward] = [check for check in told["checks"] if check["id"] == "reward"]
    assert (reward["level"], reward["stage"]) == ("good", "zero")
    assert reward["stages"]["zero"]["value"] == pytest.approx(0.6, abs=0.01)
    assert told["stages"][0]["after"] == {"pass@1": 0.7}
    assert told["stages"][0]["alarms"]["praised failure"] == 9 * 2


@pytest.mark.slow
def test_markdown_tells_health_stages_and_where_it_left_the_recipe(run):
    folder = run(after={"pass@1": 0.7, "pass@1 95%": [0.6, 0.8]})
    (folder / "zero/data.card.json").write_text(json.dumps({"kept": 7, "dropped": {"wrong": 3}}))
    write_report(folder)
    text = (folder / "report.md").read_text()
    assert "| ● good | Is the reward rising? | 0.707 → 1.31 | zero |" in text
    assert "| zero | 10 | 7 | 3 wrong |" in text
    assert "| zero | pass@1 | – | 0.700 (0.600 to 0.800) | – |" in text
    assert "- commit: 0123456789abcdef and uncommitted changes" in text


def test_only_cells_of_markdown_are_clipped(run):
    names = [f"a_metric_with_a_long_name_{i}" for i in range(9)]
    folder = run()
    manifest = json.loads((folder / "run.json").read_text())
    missed = {"value": 0.1, "at_least": 0.5, "at_most": None, "met": False}
    manifest["stages"][0]["goals"] = dict.fromkeys(names, missed)
    (folder / "run.json").write_text(json.dumps(manifest))
    write_report(folder)
    head, _, rest = (folder / "report.md").read_text().partition("## Health")
    assert all(name.replace("_", "\\_") in head for name in names) and "…" in rest


def test_a_gain_is_shown_with_its_interval(run):
    gains = {"pass@1": 0.5, "pass@1 95%": [0.375, 0.625]}
    folder = run(steps=1, before={"pass@1": 0.25}, after={"pass@1": 0.75}, gains=gains)
    write_report(folder)
    shown = "+0.500 (+0.375 to +0.625)"
    assert f"| zero | pass@1 | 0.250 | 0.750 | {shown} |" in (folder / "report.md").read_text()
    assert f"<td>{shown}</td>" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_a_second_run_lies_under_the_first(run):
    one, other = run("one", recipe={"seed": 4}), run("two", recipe={"seed": 5}, steps=12)
    write_report(one, other)
    drawn = json.loads(parsed(one).scripts["drawn"])
    assert drawn["others"] == ["two"]
    assert drawn["stages"][0]["others"][0]["steps"] == list(range(1, 13))
    text = (one / "report.md").read_text()
    assert "| stage | key | one | two |" in text and "| zero | seed | 4 | 5 |" in text
    assert not (other / "report.html").exists()


def passed(value):
    return {"pass@1": value, "pass@1 95%": [value - 0.05, value + 0.05]}


@pytest.fixture
def three(run):
    """Runs that end at 0.5, 0.52 and 0.9; the last has one stage more."""
    told = {"one": 0.5, "two": 0.52, "three": 0.9}
    runs = [run(n, before=passed(0.2), after=passed(v), steps=2) for n, v in told.items()]
    manifest = json.loads((runs[2] / "run.json").read_text())
    manifest["stages"].append({**manifest["stages"][0], "name": "sft", "status": "failed"})
    (runs[2] / "run.json").write_text(json.dumps(manifest))
    return runs


def test_every_run_has_its_outcome_and_its_columns_in_the_stage_table(three, as_json):
    write_report(*three)
    html = (three[0] / "report.html").read_text(encoding="utf-8")
    header = html[html.index("<header>") : html.index("</header>")]
    assert re.findall(r"<b>(\w+)</b> Held-out pass@1 0.200 \S+ \S+ → (\S+)", header) == [
        ("one", "0.500"), ("two", "0.520"), ("three", "0.900"),
    ]  # fmt: skip
    assert header.count("; 1 of 2 started stages done; sft failed") == 1
    stages = html[html.index('<section id="stages"') : html.index("Lineage and rows")]
    assert re.findall(r'<th colspan="7" scope="colgroup">(\w+)</th>', stages) == [
        "one", "two", "three",
    ]  # fmt: skip
    rows = [re.findall(r'data-column="pass@1">([^<]*)', row) for row in stages.split("<tr>")]
    assert [row for row in rows if row] == [
        ["0.2 → 0.5", "0.2 → 0.52", "0.2 → 0.9"], ["–", "–", "0.2 → 0.9"],
    ]  # fmt: skip
    told = as_json(three[0] / "report.json")
    assert told["run"] == "one" and [other["run"] for other in told["others"]] == ["two", "three"]
    assert told["others"][1]["stages"][1]["status"] == "failed"
    assert told["others"][0]["outcome"].startswith("Held-out pass@1 0.200 [0.150, 0.250] → 0.520")


def test_all_runs_lie_in_one_picture_and_one_comparison(three):
    write_report(*three)
    html = (three[0] / "report.html").read_text(encoding="utf-8")
    picture = html[html.index("<svg") : html.index("</svg>")]
    assert html.count("<svg") == 1 and picture.count("<circle") == 2 * 4
    assert re.findall(r"<title>([^:]+): 0.200", picture) == [
        "one, zero", "two, zero", "three, zero", "three, sft",
    ]  # fmt: skip
    assert len(set(re.findall(r"--run:var\(--s\d\)", picture))) == 3
    compared = html[html.index('<section id="comparison"') :]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", compared[: compared.index("</table>")])
    assert cells == ["0.5", "0.52", "overlap", "0.9", "disjoint"]
    text = (three[0] / "report.md").read_text()
    assert "- two: Held-out pass@1" in text and "| sft | three | failed |" in text


def test_runs_that_asked_other_problems_or_were_judged_otherwise_are_not_compared(run):
    """Hash of the problems and version of the verifiers of each run, and the reason given."""
    cases = {
        "first": ("a", "1", None), "same": ("a", "1", "overlap"),
        "others": ("b", "1", "other problems"), "judge": ("a", "2", "other verifiers"),
    }  # fmt: skip
    folders = []
    for name, (problems, version, _) in cases.items():
        after = {**passed(0.5), "problems_hash": problems}
        folders.append(run(name, before=passed(0.2), after=after, steps=2))
        versions = json.dumps({"verifiers": {"number": version, name: "1"}})  # and one of its own
        (folders[-1] / "zero/versions.json").write_text(versions)
    write_report(*folders)
    html = (folders[0] / "report.html").read_text(encoding="utf-8")
    compared = html[html.index('<section id="comparison"') :]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", compared[: compared.index("</table>")])
    expected = [cell for *_, reason in cases.values() if reason for cell in ("0.5", reason)]
    assert cells == ["0.5", *expected]


def test_runs_that_asked_at_another_temperature_are_compared_by_greedy_answers_alone(run):
    measured = {**passed(0.5), "greedy": 0.6, "greedy 95%": [0.55, 0.65], "problems_hash": "a"}
    folders = [
        run(f"at-{degree}", after={**measured, "temperature": degree}, steps=2)
        for degree in (1.0, 0.6)
    ]
    write_report(*folders)
    html = (folders[0] / "report.html").read_text(encoding="utf-8")
    compared = html[html.index('<section id="comparison"') :]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", compared[: compared.index("</table>")])
    assert cells == ["0.5", "0.5", "another temperature", "0.6", "0.6", "overlap"]


def test_runs_of_one_name_are_named_by_their_folders_and_none_is_given_twice(run, tmp_path):
    folders = [run(name, steps=1) for name in ("a/demo", "b/demo", "c")]
    assert [one.name for one in read_runs(folders)] == [
        "a/demo", "b/demo", f"{tmp_path.name}/c",
    ]  # fmt: skip
    assert [one.name for one in read_runs(folders[1:])] == ["demo", "c"]
    with pytest.raises(RecipeError, match=r"b/\.\./c is given twice"):
        write_report(folders[2], folders[0] / "../../b/../c")


@pytest.mark.slow
def test_curves_of_many_other_runs_are_thinned(run, monkeypatch):
    monkeypatch.setattr(write, "POINTS", 30)
    monkeypatch.setattr(write, "MIN_POINTS", 10)
    runs = [run(name, steps=19, groups=lambda _: []) for name in ("one", "two", "three", "four")]
    write_report(*runs)
    [stage] = json.loads(parsed(runs[0]).scripts["drawn"])["stages"]
    assert len(stage["curves"]["steps"]) == 19
    assert [other["every"] for other in stage["others"]] == [2, 2, 2]


def test_a_run_that_has_not_ended_has_a_report_too(run):
    folder = run(steps=2)
    told = json.loads((folder / "run.json").read_text())
    told["stages"][0] |= {"status": "running", "before": {}, "after": {}, "seconds": 0.0}
    (folder / "run.json").write_text(json.dumps(told))
    with (folder / "zero/metrics.jsonl").open("a") as lines:
        lines.write('{"step": 3, "rew')  # torn
    with (folder / "zero/evaluations.jsonl").open("a") as lines:
        lines.write('{"step": 0, "pass@1": 0.5}\n{"st')
    write_report(folder)
    assert "zero has not ended" in (folder / "report.md").read_text()


def test_a_run_without_rollouts_or_stages_has_a_report_too(run):
    folder = run(steps=1)
    told = json.loads((folder / "run.json").read_text()) | {"stages": []}
    (folder / "run.json").write_text(json.dumps(told))
    write_report(folder)
    assert json.loads(parsed(folder).scripts["drawn"])["stages"] == []


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="holds no run"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is not JSON"):
        write_report(tmp_path)


@pytest.mark.slow
def test_broken_metrics_are_named(run):
    folder = run(steps=2)
    (folder / "zero/metrics.jsonl").write_text("junk\n{}\n")
    with pytest.raises(ValueError, match="line 1 of 2"):
        write_report(folder)


@pytest.mark.slow
def test_another_folder_can_hold_the_report(run, tmp_path):
    folder = run()
    made = write_report(folder, into=tmp_path / "elsewhere")
    assert made.page == tmp_path / "elsewhere/report.html"
    assert {p.name for p in made.page.parent.iterdir()} == {
        "report.html", "report.md", "report.json",
    }  # fmt: skip
    assert not (folder / "report.html").exists()


def test_rollouts_from_before_tokens_were_recorded_are_shown(run, monkeypatch):
    folder = run(steps=2)
    import pyarrow.parquet as pq

    for path in (folder / "zero/rollouts").iterdir():
        table = pq.read_table(path)
        old = [n for n in table.column_names if n not in ("trainer_logp", "clipped", "entropy")]
        pq.write_table(table.select([n for n in old if n != "token_advantage"]), path)
    write_report(folder)
    told = json.loads(parsed(folder).scripts["rollouts-0"])
    tokens = told["train"][0]["groups"][0]["answers"][0]["tokens"]
    assert tokens["logp"] == [-500] * 3 and "off" not in tokens and tokens["ids"] == [5, 6, 7]


def test_the_reference_that_a_copied_test_needs_is_in_the_page(run):
    folder = run(steps=1)
    write_report(folder)
    group = json.loads(parsed(folder).scripts["rollouts-0"])["train"][0]["groups"][0]
    problem = Problem(
        id=group["problem"], prompt=group["prompt"], verifier=group["verifier"],
        reference=json.loads(group["reference"]), facts=json.loads(group["facts"]),
    )  # fmt: skip
    assert judge(problem, group["answers"][0]["text"]).score == 1.0
