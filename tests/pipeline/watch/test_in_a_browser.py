"""The live page in a real browser: what is new shows at once, and nothing breaks it."""

import json
import subprocess
import sys
import time

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from benchmarks.chromium import Chromium, find_chromium
from veriloop.pipeline.watch.server import Watch

SOON_S = 2.0  # from a line on disk to the eye
STEPS = "document.querySelector('#chart-reward .plot')?.data?.at(-1).x"
STATE = "document.getElementById('state').textContent"
SHOWN = "document.querySelector('#step')?.previousSibling.data"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def browser():
    with Chromium() as opened:
        yield opened
        opened.open("about:blank")


@pytest.fixture
def watched(growing, browser):
    """Function: the run's page, opened; the server ends with the test."""
    running = []

    def show(place="", *, port=0, steps=None):
        running.append(Watch(growing.folder, port=port).__enter__())
        browser.open("about:blank")
        browser.open(f"{running[-1].url}{place}")
        browser.until("document.documentElement.dataset.ready === 'yes'")
        if steps is not None:
            drawn(browser, steps)
        return browser

    show.servers = running
    yield show
    browser.open("about:blank")
    for one in running:
        one.close()


def drawn(browser, steps, seconds=60):
    browser.until(
        f"JSON.stringify({STEPS}) === '{json.dumps(steps, separators=(',', ':'))}'", seconds
    )


def quiet_console(browser):
    assert not browser.errors
    origin = browser.value("location.origin")
    assert all(one.startswith(f"{origin}/") for one in browser.requests if one[:6] != "about:")


def test_a_new_step_is_seen_within_two_seconds_of_its_line(growing, watched):
    growing.step(1)
    growing.step(2)
    browser = watched(steps=[1, 2])
    for step in (3, 4, 5):
        growing.rollouts(step, ["<answer>2</answer>", "no"])
        growing.step(step, texts=())
        written = time.monotonic()
        drawn(browser, list(range(1, step + 1)))
        browser.until(f"{SHOWN} === 'Step {step} '")
        assert time.monotonic() - written < SOON_S
    assert browser.value("document.querySelector('#chart-reward .key b').textContent") == "1.25"
    assert f"step {step} of 50, about 90 s left" in browser.value(STATE)
    quiet_console(browser)


def test_every_picture_of_the_report_is_drawn_live_and_none_twice(growing, watched):
    growing.step(1)
    for step in (0, 1):
        growing.evaluated(step, 0.5)
    browser = watched(steps=[1])
    growing.step(2, loss=1.0)
    browser.until("document.querySelector('#chart-loss') !== null")
    drawn(browser, [1, 2])
    ids = browser.value("[...document.querySelectorAll('.card')].map((one) => one.id)")
    assert len(ids) == len(set(ids)) and {"chart-held-out", "chart-entropy", "chart-tokens"} <= {
        *ids
    }
    browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.value("document.querySelectorAll('.plot').forEach((one) => one.draw())")
    browser.until(
        "[...document.querySelectorAll('.plot')].every((one) => one.querySelector('.main-svg'))"
    )
    quiet_console(browser)


def test_a_reload_shows_everything_and_then_what_is_new(growing, watched):
    growing.step(1)
    browser = watched(steps=[1])
    growing.step(2)
    drawn(browser, [1, 2])
    browser.call("Page.reload")
    browser.until(f"document.readyState === 'complete' && {STEPS}")
    drawn(browser, [1, 2])
    growing.step(3)
    drawn(browser, [1, 2, 3])
    quiet_console(browser)


def test_another_server_in_the_same_place_continues_where_the_first_one_died(growing, watched):
    growing.step(1)
    browser = watched(steps=[1])
    browser.value("window.before = document.querySelector('#chart-reward .plot'); 0")
    port = watched.servers[0].socket.getsockname()[1]
    watched.servers[0].close()
    browser.until(f"{STATE}.startsWith('no connection to veriloop watch')")
    growing.step(2)
    watched.servers.append(Watch(growing.folder, port=port).__enter__())
    drawn(browser, [1, 2])
    assert browser.value("window.before.isConnected")  # it was not drawn anew
    browser.until(f"{STATE}.startsWith('zero is running')")


def test_the_newest_rollouts_are_followed_until_one_is_opened(growing, watched):
    growing.step(1)
    browser = watched()
    browser.until(f"{SHOWN} === 'Step 1 '")
    growing.step(2)
    browser.until(f"{SHOWN} === 'Step 2 '")
    browser.press("j")
    assert browser.value("location.hash") == "#stage=zero&step=2&group=0&i=1"
    for step in range(3, 14):  # more than the page holds
        growing.step(step)
    browser.until("document.getElementById('follow')?.textContent.endsWith('step 13')")
    assert browser.value(SHOWN) == "Step 2 "
    browser.press("f")
    browser.until(f"{SHOWN} === 'Step 13 '")
    assert browser.value("location.hash") == ""
    browser.press("[")
    assert browser.value(SHOWN) == "Step 12 "
    quiet_console(browser)


def test_tokens_are_shown_by_the_tokenizer_of_the_start(growing, watched, tmp_path):
    words = Tokenizer(WordLevel({"<": 0, "one": 5, "and": 6, "two": 7}, unk_token="<"))
    words.save(str(tmp_path / "tokenizer.json"))
    growing.manifest.note("zero", {"inputs": {"start": str(tmp_path)}})
    for step in (1, 2):
        growing.step(step)
    browser = watched()
    browser.until(f"{SHOWN} === 'Step 2 '")
    shown = "[...document.querySelectorAll('.tokens .token')].map((one) => one.textContent.trim())"
    assert browser.value(shown) == ["one", "and", "two"]
    browser.press("[")
    assert browser.value(SHOWN) == "Step 1 " and browser.value(shown) == ["one", "and", "two"]
    quiet_console(browser)


def test_a_link_leads_to_its_answer_though_newer_ones_come_first(growing, watched):
    for step in range(1, 6):
        growing.step(step)
    browser = watched("#stage=zero&step=3&group=0&i=1")
    browser.until("document.getElementById('follow')?.textContent.endsWith('step 5')")
    browser.until(f"{SHOWN} === 'Step 3 '")
    assert browser.value("document.querySelector('.answers [aria-current]').dataset.i") == "1"


DIES = """
import sys, time
from pathlib import Path
from veriloop.pipeline.runs.record import StageRecord
record = StageRecord(Path(sys.argv[1]), tensorboard=False)
for step in range(1, 1000):
    record.write_metrics(step, {"reward": 0.5, "reward_std": 0.1})
    time.sleep(0.2)
"""


def test_a_run_that_is_killed_is_seen_to_be_silent(growing, watched):
    words = [sys.executable, "-c", DIES, str(growing.folder / "zero")]
    with subprocess.Popen(words) as process:
        browser = watched()
        browser.until(f"({STEPS} || []).length > 3")
        assert "nothing new" not in browser.value(STATE)
        process.kill()
    browser.until(f"/^zero is running, step \\d+ of 50; nothing new for [5-9] s$/.test({STATE})")
    assert browser.value("document.querySelector('#curves .card') !== null")
    quiet_console(browser)


def test_how_a_run_ended_is_what_its_run_json_says(growing, watched):
    growing.step(1)
    browser = watched(steps=[1])
    growing.end("failed", failure="no sampler \u202eleft\x1b[31m")
    ended = "0 of 1 started stages done; zero failed; zero: no sampler"
    browser.until(f"{STATE}.startsWith('{ended}')")
    assert "⟨202e⟩left␛[31m" in browser.value(STATE)
    table = "document.querySelector('#stages table').textContent"
    browser.until(f"{table}.includes('failed')")
    growing.begin()
    growing.end()
    browser.until(f"{STATE}.startsWith('1 of 1 started stages done')")
    quiet_console(browser)


def test_a_resumed_run_takes_back_what_it_forgets(growing, watched):
    for step in (1, 2, 3):
        growing.step(step)
    browser = watched(steps=[1, 2, 3])
    growing.record.rewind(1)
    growing.step(2, texts=("another",))
    drawn(browser, [1, 2])
    browser.until("document.querySelector('#rollouts').textContent.includes('another')")
    assert browser.value("document.querySelector('#step').max") == "1"  # steps 1 and 2
    quiet_console(browser)


def test_a_run_that_has_ended_opens_where_rollouts_are(growing, watched):
    growing.step(1)
    growing.end()
    growing.begin("sft")
    growing.step(7, texts=())
    growing.end()
    browser = watched(steps=[1])
    browser.until(f"{SHOWN} === 'Step 1 '")
    pressed = "document.querySelector('#picker [aria-pressed=true]').textContent"
    assert browser.value(pressed) == "zero"
    browser.value("[...document.querySelectorAll('#picker button')].at(-1).click()")
    drawn(browser, [7])
    assert browser.value("document.querySelector('#rollouts-here').textContent") == (
        "This stage recorded no rollouts."
    )
    quiet_console(browser)


def test_a_run_without_a_stage_or_a_step_says_so_until_there_is_one(growing, watched):
    told = json.loads((growing.folder / "run.json").read_text())
    (growing.folder / "run.json").write_text(json.dumps(told | {"stages": []}))
    browser = watched()
    browser.until(f"{STATE}.startsWith('nothing recorded yet')")
    text = "document.querySelector('#{}').textContent"
    assert browser.value(text.format("stages-here")) == "No stage has begun yet."
    for key in "jkJK[]tnf":
        browser.press(key)
    growing.begin("late")
    browser.until(f"{text.format('curves-here')} === 'No metrics yet: the stage is running.'")
    assert browser.value(text.format("rollouts-here")) == "No rollouts yet: the stage is running."
    for key in "jkJK[]tnf":
        browser.press(key)
    growing.step(1)
    drawn(browser, [1])
    browser.until(f"{SHOWN} === 'Step 1 '")
    quiet_console(browser)


def test_a_new_stage_is_shown_when_it_begins_unless_one_was_picked(growing, watched):
    growing.step(1)
    browser = watched(steps=[1])
    growing.end()
    growing.begin("sft")
    growing.step(7, texts=())
    drawn(browser, [7])
    pressed = "document.querySelector('#picker [aria-pressed=true]').textContent"
    assert browser.value(pressed) == "sft"
    browser.value("document.querySelector('#picker button').click()")
    drawn(browser, [1])
    growing.end()
    growing.begin("late")
    browser.until("document.querySelectorAll('#picker button').length === 3")
    assert browser.value(pressed) == "zero"
    quiet_console(browser)


HOSTILE = [
    "</script><img src=http://127.0.0.1:9/x onerror=\"document.title='taken'\">",
    "<svg onload=alert(1)>\x1b]0;title\x07\x1b[31mred",
    "nul\0byte \u202eright to left \u200b\r\n\r\nevent: reset\ndata: {}\n\n",
    "x" * 1_000_000,
    "[click](javascript:alert(1)) %{x} <extra></extra><b>",
]


def test_hostile_text_is_text_in_every_step(growing, watched):
    for step, one in enumerate(HOSTILE, 1):
        growing.rollouts(step, [one], prompt=one, problem=one[:60], detail=one[:300])
        growing.step(step, texts=(), **{one[:200]: 1.0, "__proto__": 2.0, "constructor": 3.0})
    lines = b"\x1b[2J\0\xff</script>" * 10 + b"\n" + b"y" * 1_000_000 + b"\n"
    with (growing.folder / "zero/metrics.jsonl").open("ab") as file:
        file.write(lines)
    told = json.loads((growing.folder / "run.json").read_text())
    told["name"] = HOSTILE[0]
    (growing.folder / "run.json").write_text(json.dumps(told))
    browser = watched(steps=[1, 2, 3, 4, 5])
    browser.until("document.getElementById('trouble').textContent.includes('metrics.jsonl')")
    for step in range(5, 0, -1):
        browser.until(f"{SHOWN} === 'Step {step} '")
        browser.press("[")
    browser.value("location.hash = '#stage=zero&step=3&group=0&i=0'")
    browser.until("document.querySelector('#rollouts').textContent.includes('⟨202e⟩')")
    assert browser.value("document.title").startswith("</script><img")
    assert not browser.value("document.querySelectorAll('main img, main b.x, [onerror]').length")
    assert "\x1b" not in browser.value("document.body.innerText")
    quiet_console(browser)


def test_what_is_half_written_is_waited_for(growing, watched):
    growing.step(1)
    whole = growing.rollouts(2, ["whole"])
    content = whole.read_bytes()
    whole.write_bytes(content[: len(content) // 2])
    with (growing.folder / "zero/metrics.jsonl").open("a") as file:
        file.write('{"step": 2, ')
    browser = watched(steps=[1])
    browser.until("document.getElementById('trouble').textContent.includes('rollouts of step 2')")
    assert browser.value(SHOWN) == "Step 1 "
    whole.write_bytes(content)
    with (growing.folder / "zero/metrics.jsonl").open("a") as file:
        file.write('"reward": 2.0}\n')
    drawn(browser, [1, 2])
    browser.until(f"{SHOWN} === 'Step 2 '")
    browser.until("document.getElementById('trouble').hidden")
    quiet_console(browser)


def test_a_long_run_is_thinned_and_keeps_its_end(growing, watched):
    rows = [json.dumps({"step": s, "reward": s / 2}) for s in range(1, 3002)]
    (growing.folder / "zero/metrics.jsonl").write_text("\n".join(rows) + "\n")
    browser = watched()
    browser.until(f"{STEPS}?.at(-1) === 3001")
    found = browser.value(STEPS)
    assert found[:3] == [1, 5, 9] and len(found) <= 1201
    assert "every 4th step is shown" in browser.value("document.querySelector('#curves').innerText")
    with (growing.folder / "zero/metrics.jsonl").open("a") as file:
        file.write('{"step": 3002, "reward": 7}\n')
    browser.until(f"{STEPS}?.at(-1) === 3002")
    assert browser.value("document.querySelector('#chart-reward .key b').textContent") == "7"
    quiet_console(browser)


def test_both_themes_keys_and_a_narrow_window(growing, watched):
    growing.step(1)
    browser = watched(steps=[1])
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.value(paper)
    browser.value("document.getElementById('theme').click()")
    assert browser.value(paper) != light
    browser.press("?")
    told = browser.value("document.getElementById('help').innerText")
    assert "show the newest step" in told
    browser.value("document.getElementById('help').close()")
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    assert browser.until("document.documentElement.scrollWidth <= 390")
    browser.call("Emulation.setDeviceMetricsOverride", **(size | {"width": 1400, "height": 1000}))
    quiet_console(browser)
