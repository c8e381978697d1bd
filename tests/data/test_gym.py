"""Tasks of reasoning-gym as sources: random access, split by the question, judged strictly."""

import importlib.util
import json
import sys
from types import ModuleType

import pytest

from veriloop.data.gym import GymSource
from veriloop.verifiers.registry import judge

installed = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None,
    reason="reasoning-gym is not installed (requirements/reasoning-gym.txt)",
)


@pytest.fixture
def package(monkeypatch):
    """Stands in for the package: a task that asks for the successor of its index modulo `few`."""
    factory = ModuleType("reasoning_gym.factory")
    factory.few, factory.DATASETS = 50, {"successor": None, "acre": None}

    class Entries:
        def __init__(self, settings):
            self.settings = settings

        def __getitem__(self, index):
            n = index % factory.few
            return {"question": f"What follows {n}?\n", "answer": f"{n + 1}", "metadata": {}}

    def create_dataset(task, **settings):
        if "step" in settings:
            raise TypeError("unexpected keyword 'step'")
        factory.made = task, settings
        return Entries(settings)

    factory.create_dataset = create_dataset
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", factory)
    return factory


def test_a_question_is_the_same_in_any_order_and_another_for_another_seed(package):
    source, again = GymSource("successor"), GymSource("successor")
    forward = [source.problem("rl", 3, n) for n in range(20)]
    assert [again.problem("rl", 3, n) for n in reversed(range(20))] == forward[::-1]
    assert [source.problem("rl", 4, n).prompt for n in range(20)] != [p.prompt for p in forward]
    one = forward[7]
    assert (one.id, one.verifier) == ("reasoning_gym/successor/rl/3/7", "reasoning_gym")
    assert one.prompt == one.reference["entry"]["question"].strip()
    assert one.facts == {"source": "reasoning_gym/successor", "language": "en"}


def test_no_question_is_both_learned_and_held_out(package):
    source = GymSource("successor")
    held_out = {one.prompt for one in source.distinct("test", 0, 50)}
    learned = {one.prompt for one in source.distinct("rl", 0, 50)}
    assert len(held_out | learned) == 50 and not held_out & learned
    assert 1 <= len(held_out) <= 15


def test_two_sets_of_one_task_hold_the_same_questions_out(package):
    names = ("all", "some")
    held = {
        n: {q.prompt for q in GymSource("successor", name=n).distinct("test", 0, 50)} for n in names
    }
    assert held["all"] == held["some"] != set()
    learned = [GymSource("successor", name="some").problem("rl", 0, i).prompt for i in range(300)]
    assert not held["all"] & set(learned)


def test_a_task_that_asks_one_thing_holds_nothing_out(package):
    package.few = 1
    source = GymSource("successor")
    assert source.problem("rl", 0, 0).prompt == "What follows 0?"
    with pytest.raises(ValueError, match="reasoning_gym/successor: has too few different question"):
        source.problem("test", 0, 0)


def test_an_evaluation_asks_as_many_different_questions_as_there_are(package):
    found = GymSource("successor").distinct("rl", 0, 10)
    assert len({one.prompt for one in found}) == 10
    assert GymSource("successor").distinct("rl", 0, 0) == []


def test_settings_reach_the_task_and_wrong_ones_are_reported(package):
    GymSource("successor", {"most": 9}, "mine")
    assert package.made == ("successor", {"most": 9, "seed": 0})
    GymSource("acre")
    assert package.made == ("acre", {"seed": 0, "size": 500})
    with pytest.raises(ValueError, match=r"successor with .'step': 2.: unexpected keyword"):
        GymSource("successor", {"step": 2})
    with pytest.raises(ValueError, match=r"no task 'sucessor'\. Did you mean 'successor'\?"):
        GymSource("sucessor")


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install --no-deps -r requirements/reason"):
        GymSource("spell_backward")


@pytest.mark.slow
@installed
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("task", ["spell_backward", "basic_arithmetic", "list_functions", "bf"])
def test_its_own_answer_is_right_and_anothers_wrong(task):
    source = GymSource(task)
    one, other = source.distinct("test", 0, 2)
    answers = [found.reference["entry"]["answer"] for found in (one, other)]
    assert judge(one, f"<answer>{answers[0]}</answer>").score == 1.0
    assert judge(one, f"<answer>{answers[0]} or {answers[1]}</answer>").score == 0.0
    json.dumps(one.reference)  # as records of rollouts hold it
