"""The page in a real browser: drawn without a complaint, read by keys and links, and alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chromium import Chromium, find_chromium
from veriloop.pipeline.report.write import write_report
from veriloop.verifiers.verdict import Verdict

ROOT = Path(__file__).parents[3]
HERE = "document.querySelector('.answers [aria-current]').dataset.i"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def browser():
    with Chromium() as opened:
        yield opened


@pytest.fixture
def shown(run, browser):
    """Function: the report of a run folder, opened from disk and ready."""

    def show(folder=None, place="", others=()):
        page = write_report(folder or run(), *others).page
        browser.open("about:blank")
        browser.open(f"{page.as_uri()}{place}")
        browser.until("document.documentElement.dataset.ready === 'yes'")
        return browser

    return show


def settled(browser):
    """Nothing was fetched and nothing complained, with every picture drawn."""
    browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.value("document.querySelectorAll('.plot').forEach((one) => one.draw())")
    browser.until(
        "[...document.querySelectorAll('.plot')].every((one) => one.querySelector('.main-svg'))"
    )
    assert not browser.errors
    assert len(browser.requests) == 1 and browser.requests[0].startswith("file:///")


def test_every_picture_is_drawn_and_nothing_is_fetched(shown):
    browser = shown()
    settled(browser)
    assert browser.value("document.querySelectorAll('#curves .card').length") >= 12
    lines = "document.querySelectorAll('#chart-reward path.js-line').length"
    assert browser.value(lines) >= 2
    assert browser.value("document.querySelectorAll('#groups .heatmaplayer image').length") == 1
    assert browser.value("document.querySelectorAll('#verdicts .bars path').length") > 10


def test_what_is_shown_without_scripts_is_shown_without_scripts(run, browser):
    page = write_report(run(after={"pass@1": 0.7, "pass@1 95%": [0.6, 0.8]})).page
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page.as_uri())
        root = browser.call("DOM.getDocument")["root"]["nodeId"]
        told = browser.call("DOM.querySelectorAll", nodeId=root, selector=".health li")
        assert len(told["nodeIds"]) == 12
        rows = browser.call("DOM.querySelectorAll", nodeId=root, selector="#stages tbody tr")
        assert len(rows["nodeIds"]) == 1
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_j_and_k_go_through_answers_best_first(shown):
    browser = shown(place="#stage=zero&step=3&group=0&i=2")
    order = browser.value("[...document.querySelectorAll('.answers li')].map((li) => li.dataset.i)")
    assert order == ["0", "2", "1", "3"]  # two right ones, two wrong ones
    for key, at in (("j", "1"), ("j", "3"), ("j", "3"), ("k", "1"), ("k", "2"), ("k", "0")):
        browser.press(key)
        assert browser.value(HERE) == at
        assert browser.value("location.hash") == f"#stage=zero&step=3&group=0&i={at}"
    assert not browser.errors


def test_keys_go_through_groups_and_steps(shown):
    browser = shown(place="#stage=zero&step=3&group=0&i=0")
    for key, place in (("J", "step=3&group=1"), ("K", "step=3&group=0"), ("]", "step=4"),
                       ("[", "step=3")):  # fmt: skip
        browser.press(key)
        assert place in browser.value("location.hash")
    browser.press("?")
    assert browser.value("document.getElementById('help').open")
    browser.press("j")  # goes to the dialog, not to the page
    assert "step=3" in browser.value("location.hash")


def test_a_link_leads_to_its_answer(shown):
    browser = shown(place="#stage=zero&step=7&group=0&i=3")
    assert browser.value(HERE) == "3"
    assert browser.value("document.querySelector('#step').previousSibling.data") == "Step 7 "
    assert browser.value("document.querySelector('.missed') === null")
    browser.value("location.hash = '#stage=zero&step=2&group=1&i=0'")
    browser.until(f"{HERE} === '0'")
    assert "Step 2 " in browser.value("document.querySelector('#rollouts').textContent")


def test_a_link_to_what_the_sample_lacks_says_so(shown, run):
    folder = run()
    browser = shown(folder, place="#stage=zero&step=700&group=9&i=3")
    told = browser.value("document.querySelector('.missed').textContent")
    assert told == "step 700 is not in the sample; this is step 9; group 9 is not in the sample."
    browser = shown(folder, place="#stage=%3Cimg%3E&step=x&group=-1&i=1e9")
    assert browser.value(HERE) and not browser.errors


def test_a_health_check_leads_to_its_picture(shown):
    browser = shown()
    browser.value("document.querySelector('.health a[href*=entropy]').click()")
    browser.until("document.querySelector('#chart-entropy.found') !== null")
    top = browser.value("document.querySelector('#chart-entropy').getBoundingClientRect().top")
    assert 0 < top < 1000


def test_pointing_at_one_picture_shows_the_step_in_all(shown):
    browser = shown()
    settled(browser)
    plot = "document.querySelector('#chart-entropy .plot')"
    browser.value(f"{plot}.emit('plotly_hover', {{points: [{{x: 4}}]}})")
    told = browser.value("document.querySelector('#chart-reward .key b').textContent")
    assert told == "0.9"  # 0.5 + 0.1 * 4
    left = "document.querySelector('#chart-gradient .cursor').style.left"
    assert float(browser.value(left).removesuffix("px")) > 20
    browser.value(f"{plot}.emit('plotly_unhover')")
    assert browser.value("document.querySelector('#chart-reward .key b').textContent") == "1.41"


def test_a_token_tells_what_its_update_saw(shown):
    browser = shown(place="#stage=zero&step=3&group=0&i=0")
    first = "document.querySelector('.tokens .token')"
    assert browser.value(f"{first}.classList.contains('clipped')")
    browser.value(f"{first}.dispatchEvent(new MouseEvent('mouseover', {{bubbles: true}}))")
    told = browser.value("document.getElementById('tip').textContent").splitlines()
    assert told == [
        "token 0, id 5",
        "log-prob as sampled -0.5",
        "trainer − sampler 0.05",
        "entropy 0.25",
        "advantage 0.5",
        "clipped, with a positive advantage",
    ]
    colour = browser.value(f"{first}.style.background")
    modes = "document.querySelector('#token-tools [aria-pressed=true]').textContent"
    browser.press("t")
    assert browser.value(modes) == "trainer − sampler"
    browser.press("t")
    assert browser.value(modes) == "entropy"
    assert browser.value(f"{first}.style.background") not in ("", colour)


def test_the_same_prompt_then_and_now(shown):
    browser = shown(place="#stage=zero&step=3&group=1&i=0")
    told = browser.value("document.querySelector('.then-and-now').textContent")
    assert "of 9 steps in the sample" in told and "First, step 1" in told and "Last, step 9" in told


def test_a_copied_test_passes_under_pytest(shown, run, answer, tmp_path):
    said = Verdict(score=0.0, answer="3")
    text = 'no, it is\u2028 "3" \\ \n<answer>3</answer>\x1b[0m 😀'
    folder = run(
        steps=1, groups=lambda _: [[answer(text, right=False, verdicts={"accuracy": said})]]
    )
    browser = shown(folder, place="#step=1&group=0&i=0")
    taken = "window.taken = null; navigator.clipboard.writeText = async (text) => { taken = text; }"
    browser.value(f"{taken}; document.getElementById('copy-test').click()")
    code = browser.until("window.taken")
    path = tmp_path / "test_copied.py"
    path.write_text(code, encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout


HOSTILE = [
    "</script><img src=http://127.0.0.1:9/x onerror=\"document.title='taken'\">",
    "<svg onload=alert(1)>\x1b]0;title\x07\x1b[31mred",
    "nul\0byte \u202eright to left \u200b",
    "x" * 1_000_000,
    "[click](javascript:alert(1)) %{x} <extra></extra><b>",
]


def test_hostile_text_is_shown_as_text_everywhere(shown, run, answer):
    def groups(step):
        one = HOSTILE[step % len(HOSTILE)]
        verdicts = {"accuracy": Verdict(score=0.0, answer=one[:300], detail=one[:300])}
        told = {"prompt": one[:3000], "problem": one[:60].replace("\0", ""), "verdicts": verdicts}
        return [[answer(one, **told)] * 2]

    browser = shown(run(steps=5, groups=groups, recipe={"name": HOSTILE[0]}))
    for _ in range(5):
        settled(browser)
        browser.press("[")
    assert browser.value("document.title") == "run – veriloop"
    assert not browser.value("document.querySelectorAll('main img, main b.x, [onerror]').length")
    told = browser.value("document.querySelector('#verdicts').textContent")
    assert "</script><img src=http://" in told
    shown_text = browser.value("document.body.innerText")
    assert "\x1b" not in shown_text and "\u202e" not in shown_text
    browser.value("location.hash = '#stage=zero&step=2&group=0&i=0'")
    browser.until("document.querySelector('#rollouts').textContent.includes('⟨202e⟩')")


def test_both_themes_and_a_narrow_window_have_no_complaint(shown):
    browser = shown()
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.value(paper)
    browser.value("document.getElementById('theme').click()")
    assert browser.value(paper) != light
    settled(browser)
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    assert browser.until("document.documentElement.scrollWidth <= 390")
    browser.call("Emulation.setDeviceMetricsOverride", **(size | {"width": 1400, "height": 1000}))


def test_two_runs_lie_in_one_picture(shown, run):
    one = run("one", recipe={"seed": 4})
    browser = shown(one, others=[run("two", recipe={"seed": 5}, steps=12)])
    settled(browser)
    dashed = "document.querySelectorAll('#chart-entropy path.js-line[style*=dasharray]').length"
    assert browser.value(dashed) == 1
    text = browser.value("document.querySelector('#comparison').textContent")
    assert "zero: 1 setting differs" in text and "seed" in text


def test_three_runs_have_a_colour_each_and_can_be_hidden(shown, run):
    others = [run(name, steps=steps) for name, steps in (("two", 12), ("three", 5))]
    browser = shown(run("one"), others=others)
    settled(browser)
    lines = "[...document.querySelectorAll('#chart-entropy path.js-line')]"
    assert browser.value(f"new Set({lines}.map((one) => one.style.stroke)).size") == 3
    key = "document.querySelector('#chart-entropy .key').innerText.split(/\\s+/)"
    assert browser.value(key) == ["one", "0.41", "two", "0.38", "three", "0.45"]
    titles = "[...document.querySelectorAll('#curves h4')].map((one) => one.textContent)"
    assert {"Reward by component: accuracy", "Reward by component: format"} <= {
        *browser.value(titles)
    }
    browser.value("document.querySelector('[data-run=\"1\"]').click()")
    browser.until(f"{lines}.length === 2")
    browser.value("document.querySelector('[data-run=\"1\"]').click()")
    browser.until(f"{lines}.length === 3")


@pytest.mark.parametrize("names", [("one",), ("one", "two", "three")])
def test_the_stage_table_fits_a_telephone(shown, run, names):
    value = {"at_least": 0.95, "value": 0.9, "met": False}
    folders = [run(name, before={"pass@1": 0.25}, after={"pass@1": 0.9}) for name in names]
    for folder in folders:
        told = json.loads((folder / "run.json").read_text())
        told["stages"][0]["goals"] = {"pass@1": value, "a_goal_of_a_very_long_name": value}
        (folder / "run.json").write_text(json.dumps(told))
    browser = shown(folders[0], others=folders[1:])
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    try:
        assert browser.until("document.documentElement.scrollWidth <= 390")
        cells = "[...document.querySelectorAll('#stages tbody th, #stages tbody td')]"
        assert browser.value(f"{cells}.length") == 1 + 7 * len(names)
        outside = (
            f"{cells}.filter((one) => {{ const at = one.getBoundingClientRect(); return "
            "at.left < 0 || at.right > 390 || at.width < 100 || one.scrollWidth > one.clientWidth; "
            "}).map((one) => one.textContent)"
        )
        assert browser.value(outside) == []
        assert browser.value("document.querySelector('#stages .scroll').scrollWidth") <= 390
        columns = f"{cells}.slice(1).map((one) => getComputedStyle(one, '::before').content)"
        shown_names = [text.strip('"').replace('" "', "") for text in browser.value(columns)]
        assert [name.split('"')[-1] for name in shown_names][1:7] == [
            "data kept / total", "reward", "pass@1", "format", "time", "goals",
        ]  # fmt: skip
        small = f"{cells}.some((one) => parseFloat(getComputedStyle(one).fontSize) < 12)"
        assert not browser.value(small)
    finally:
        whole = {"width": 1400, "height": 1000, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", **(size | whole))


def test_a_run_of_several_stages_shows_one_at_a_time(shown, run):
    folder = run()
    told = json.loads((folder / "run.json").read_text())
    told["stages"].append({**told["stages"][0], "name": "sft", "status": "running"})
    (folder / "run.json").write_text(json.dumps(told))
    browser = shown(folder)
    browser.value("[...document.querySelectorAll('#picker button')][1].click()")
    assert "No metrics yet: the stage is running." in browser.value(
        "document.querySelector('#curves').textContent"
    )
    assert "No rollouts yet" in browser.value("document.querySelector('#rollouts').innerText")
    browser.press("j")
    assert not browser.errors


def test_verdict_flips_are_a_table_whose_texts_are_texts_and_whose_links_lead(shown, run):
    folder = run()
    told = {"score": 0.0, "status": "graded", "answer": "<img src=x onerror=y()>", "detail": ""}
    flip = {"step": 3, "group": 0, "i": 2, "problem": "p/<b>", "old": told, "new": told}
    kinds = {"right": {"right": 30, "wrong": 2}, "wrong": {"right": 1, "wrong": 4}}
    summary = {"verifier": "number", "version": "2+f00", "component": "accuracy", "rollouts": 37}
    summary |= {"up": 1, "down": 2, "errors": 0, "flips": 3, "matrix": kinds, "largest": [flip]}
    (folder / "rescored/number@2+f00/zero").mkdir(parents=True)
    (folder / "rescored/number@2+f00/zero/accuracy.json").write_text(json.dumps(summary))
    browser = shown(folder)
    seen = browser.value("document.querySelector('#reward-hacks-here').textContent")
    assert "Verdict flips: accuracy by number 2+f00" in seen and "1 rewards up, 2 down" in seen
    assert "read <img src=x onerror=y()>" in seen and "p/<b>" in seen
    browser.value("[...document.querySelectorAll('#reward-hacks-here a')].at(-1).click()")
    browser.until(f"{HERE} === '2'")
    settled(browser)


def test_a_press_of_a_key_while_typing_elsewhere_is_left_alone(shown):
    browser = shown(place="#stage=zero&step=3&group=0&i=0")
    browser.value("document.body.appendChild(document.createElement('textarea')).focus()")
    browser.press("j")
    assert browser.value(HERE) == "0"


def test_events_are_marked_in_every_chart_and_a_kind_can_be_hidden(shown, run):
    folder = run()
    (folder / "zero/resumes.jsonl").write_text('{"step": 4}\n')
    (folder / "zero/evaluations.jsonl").write_text('{"step": 0}\n{"step": 9}\n')
    browser = shown(folder)
    settled(browser)
    legend = browser.value("document.querySelector('#curves .events').textContent")
    assert legend == "evaluation (2)resumed (1)"
    names = "document.querySelector('#chart-entropy .plot').layout.shapes.map((s) => s.name)"
    assert browser.value(names) == ["evaluation", "evaluation", "resume"]
    browser.value("document.querySelector('[data-event=evaluation]').click()")
    browser.until(f"{names}.length === 1")


def test_responses_are_searched_and_filtered(shown, run, answer):
    def groups(step):
        hostile = f"<img src=x onerror=alert(1)> Needle {step}"
        return [[answer(hostile, right=step > 2), answer("hay", right=False, prompt="a needle?")]]

    browser = shown(run(steps=3, groups=groups))
    browser.value("document.getElementById('search').open = true")
    browser.until("document.getElementById('search-text') !== null")

    def choose(id, value, event):
        field = f"document.getElementById('{id}')"
        browser.value(f"{field}.value = '{value}'; {field}.dispatchEvent(new Event('{event}'))")
        return browser.value("document.querySelectorAll('.results li').length")

    assert choose("search-text", "NEEDLE", "input") == 3
    assert choose("filter-verdict", "right", "change") == 1
    assert choose("filter-step", "1", "change") == 0
    assert choose("filter-verdict", "", "change") == 1
    assert "<img src=x" in browser.value("document.querySelector('.results').textContent")
    assert not browser.value("document.querySelectorAll('main img').length")
    browser.value("document.querySelector('.results button').click()")
    assert "step=1&group=0&i=0" in browser.value("location.hash")
    assert not browser.errors
