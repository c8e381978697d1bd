"""Cold start as a stage: chains collected once, carded, and learned by the base."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from veriloop.data import arithmetic
from veriloop.data.card import card_of, read_card
from veriloop.data.decontaminate import formulas
from veriloop.data.jsonl import read_rows
from veriloop.data.problem import Problem
from veriloop.pipeline.config.sft import ColdStartRecipe
from veriloop.pipeline.errors import RecipeError, StageError, Stopped
from veriloop.pipeline.rollouts.generate import prompt_ids
from veriloop.pipeline.sft import rejection_sampling
from veriloop.stages import cold_start, sft, teacher_data
from veriloop.stages.resumption import allowing
from veriloop.verifiers.registry import fingerprint


@pytest.fixture
def recipe(collected_values):
    def build(**changes):
        return ColdStartRecipe.model_validate(collected_values | changes)

    return build


def rows_of(data):
    return list(read_rows(Path(data)))


@pytest.mark.slow
def test_verified_chains_are_collected_carded_and_learned(recipe, teacher, tmp_path, stage):
    made = cold_start.run(recipe(), tmp_path, resume=False)
    told = stage(tmp_path)
    assert (told["name"], told["status"]) == ("cold_start", "done")
    assert told["outputs"]["checkpoint"] == str(made) and told["outputs"]["rows"] == 12
    data = tmp_path / "cold_start" / "data.jsonl"
    assert told["outputs"]["data"] == str(data)
    assert told["outputs"]["card"] == str(card_of(data))
    card = read_card(data)
    assert card["sha256"] == told["outputs"]["data_sha256"]
    assert (card["questions"], card["sampled"], card["kept"]) == (12, 24, 12)
    assert card["dropped"] == {"wrong": 12} and card["sources"] == {"arithmetic": 12}
    assert card["verifiers"] == fingerprint(["number", "think_format_lenient"])
    assert card["teacher"] == str(teacher[0]) and len(card["teacher_weights"]) == 64
    asked = [formulas(row["prompt"][0]["content"]).pop() for row in rows_of(data)]
    assert len(set(asked)) == 12 and {arithmetic.split_of(one) for one in asked} == {"rl"}


@pytest.mark.slow
def test_rows_use_the_template_of_the_rl_stages(recipe, tmp_path):
    cold_start.run(recipe(), tmp_path, resume=False)
    tokenizer = sft.open_tokenizer(Path(recipe().start), recipe().data)
    by_id = {p.id: p for p in arithmetic.distinct("rl", 0, 12)}
    for row in rows_of(tmp_path / "cold_start" / "data.jsonl"):
        text = tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, tokenize=False
        )
        ids = tuple(tokenizer(text, add_special_tokens=False).input_ids)
        assert ids == prompt_ids(by_id[row["problem"]], tokenizer)


@pytest.mark.slow
def test_a_complete_data_file_is_not_collected_again(recipe, teacher, tmp_path, stopping):
    _, engine = teacher
    with stopping(), pytest.raises(Stopped):
        cold_start.run(recipe(), tmp_path / "broken", resume=False)
    assert engine.asked == [5, 5, 2]
    broken = cold_start.run(recipe(), tmp_path / "broken", resume=True)
    assert engine.asked == [5, 5, 2]
    whole = cold_start.run(recipe(), tmp_path / "whole", resume=False)
    assert engine.asked == [5, 5, 2] * 2
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_collection_resumes_in_the_round_it_stopped_in(recipe, teacher, tmp_path, monkeypatch):
    _, engine = teacher
    sample, calls = engine.sample, []

    def dying(prompts, sampling, told=None):
        calls.append(len(prompts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sample(prompts, sampling, told)

    monkeypatch.setattr(engine, "sample", dying)
    with pytest.raises(KeyboardInterrupt):
        cold_start.run(recipe(), tmp_path, resume=False)
    assert not (tmp_path / "cold_start" / "data.jsonl").exists()
    cold_start.run(recipe(), tmp_path, resume=True)
    assert calls == [5, 5, 5, 2] and len(rows_of(tmp_path / "cold_start" / "data.jsonl")) == 12


def test_other_filters_or_another_teacher_ask_for_other_data(recipe, teacher, tmp_path):
    keys = {
        teacher_data._asked(one, teacher[0])
        for one in (
            recipe(),
            recipe(filters={"min_words": 3}),
            recipe(seed=1),
            recipe(rewrite={"layout": "<think>{thinking}</think> {answer}"}),
            recipe(sampler={"engine": "torch", "dtype": "bfloat16"}),
        )
    }
    assert len(keys) == 5
    collect = recipe().collect.model_dump() | {"verifier_workers": 4}
    assert teacher_data._asked(recipe(collect=collect), teacher[0]) in keys
    (tmp_path / "model.safetensors").write_bytes(b"others")
    assert teacher_data._asked(recipe(), tmp_path) not in keys
    corrected = tmp_path / "teacher"
    shutil.copytree(teacher[0], corrected)
    assert teacher_data._asked(recipe(), corrected) in keys
    (corrected / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert teacher_data._asked(recipe(), corrected) not in keys


def test_questions_in_a_language_that_cannot_be_counted_are_refused_before_any_is_asked():
    facts = {"source": "mine", "language": "tlh-KX"}
    asked = [Problem(id="mine/0", prompt="?", verifier="number", reference={}, facts=facts)]
    with pytest.raises(RecipeError, match="questions of mine: language 'tlh-KX' is not an ISO"):
        teacher_data._require_languages(asked)
    teacher_data._require_languages([replace(asked[0], facts={"language": "pt_BR"})])


@pytest.mark.slow
@pytest.mark.parametrize("complete", [False, True])
def test_changed_verifiers_are_refused_or_all_is_judged_again(
    recipe, teacher, tmp_path, monkeypatch, stage, changed_verifiers, complete
):
    """Before there is a checkpoint: in the second round, and when the data are complete."""
    _, engine = teacher
    sample = engine.sample

    def dying(prompts, sampling, told=None):
        if not complete and engine.asked:
            raise KeyboardInterrupt
        return sample(prompts, sampling, told)

    def failing(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(engine, "sample", dying)
        patched.setattr(cold_start, "fine_tune", failing)
        with pytest.raises(KeyboardInterrupt):
            cold_start.run(recipe(), tmp_path, resume=False)
    begun, asked = stage(tmp_path), len(engine.asked)
    changed_verifiers()
    with pytest.raises(RecipeError, match=r"verifier number: \S+ -> \S+.*--allow-changed verifier"):
        cold_start.run(recipe(), tmp_path, resume=True)
    assert stage(tmp_path) == begun and len(engine.asked) == asked
    with allowing(["verifier"]):
        cold_start.run(recipe(), tmp_path, resume=True)
    assert engine.asked[asked:] == [5, 5, 2]
    ended = stage(tmp_path)["lineage"]
    assert {change["name"] for change in ended["allowed_changes"]} == set(ended["verifiers"])
    assert len(list((tmp_path / "cold_start").glob("samples-*"))) == 2
    card = read_card(tmp_path / "cold_start" / "data.jsonl")
    assert card["verifiers"] == fingerprint(ended["verifiers"]) != ended["verifiers"]


def test_a_plugin_counts_among_what_the_data_depend_on(recipe, teacher, tmp_path):
    plugin, keys = tmp_path / "mine.py", set()
    for text in ("", "# another"):
        plugin.write_text(text)
        keys.add(teacher_data._asked(recipe(plugins=[str(plugin)]), teacher[0]))
    assert len(keys) == 2


@pytest.mark.slow
def test_the_teacher_is_asked_in_its_own_template_where_the_recipe_says_so(
    recipe, teacher, tmp_path, monkeypatch
):
    folder, engine = teacher
    sample, texts = engine.sample, []

    def reading(prompts, sampling, told=None):
        texts.extend(engine.tokenizer.decode(list(prompt)) for prompt in prompts)
        return sample(prompts, sampling, told)

    monkeypatch.setattr(engine, "sample", reading)
    collect = recipe().collect.model_dump() | {"template": "chat", "system": "Be brief."}
    asked = recipe(collect=collect)
    cold_start.run(asked, tmp_path, resume=False)
    assert len(texts) == 12 and all(text.startswith("<bos>Be brief. User:") for text in texts)
    assert teacher_data._asked(asked, folder) != teacher_data._asked(recipe(), folder)


def test_no_good_answer_ends_the_stage_with_the_reasons(recipe, tmp_path, stage):
    with pytest.raises(StageError, match=r'none was good enough .*"short": 12, "wrong": 12'):
        cold_start.run(recipe(filters={"min_words": 99}), tmp_path, resume=False)
    told = stage(tmp_path)
    assert told["status"] == "failed" and "good enough" in told["outputs"]["failure"]


@pytest.mark.slow
def test_questions_are_asked_of_a_published_set(recipe, tmp_path):
    rows = [
        {"question": f"What is {n}+{n}+1?", "answer": f"#### {2 * n + 1}"} for n in range(1, 10)
    ]
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = recipe().collect.model_dump() | {"problems": {"gsm8k": 1.0}, "questions": 5}
    sets = {"gsm8k": {"path": str(path), "held_out": 0.3}}
    cold_start.run(recipe(collect=asked, sets=sets), tmp_path / "run", resume=False)
    data = tmp_path / "run" / "cold_start" / "data.jsonl"
    card = read_card(data)
    assert card["sources"] == {"gsm8k": 5} and "math_answer" in card["verifiers"]
    assert card["sets"]["gsm8k"]["learned"] + card["sets"]["gsm8k"]["held_out"] == 9
    learned = {row["prompt"][0]["content"] for row in rows_of(data)}
    assert len(learned) == 5 and learned <= {row["question"] for row in rows}


@pytest.mark.slow
def test_a_question_whose_prompt_is_too_long_is_not_asked(recipe, tmp_path):
    rows = [
        {"question": f"{'Think. ' * words}What is {n}+{n}+1?", "answer": f"#### {2 * n + 1}"}
        for n, words in ((1, 0), (2, 60), (3, 0), (4, 0), (5, 60), (6, 0))
    ]
    for name, some in (("train", rows[:5]), ("test", rows[5:])):
        text = "".join(json.dumps(row) + "\n" for row in some)
        (tmp_path / f"{name}.jsonl").write_text(text)
    sets = {"gsm8k": {"path": str(tmp_path)}}
    for most, short in ((256, 2), (2000, 0)):
        asked = recipe().collect.model_dump() | {"problems": {"gsm8k": 1.0}, "questions": 3}
        made = recipe(collect=asked | {"max_prompt": most}, sets=sets)
        cold_start.run(made, tmp_path / str(most), resume=False)
        card = read_card(tmp_path / str(most) / "cold_start" / "data.jsonl")
        assert card["sets"]["gsm8k"]["dropped"].get("prompt too long", 0) == short


def test_what_cannot_be_asked_is_refused(recipe, tmp_path):
    with pytest.raises(RecipeError, match="teacher: nowhere holds no Hugging Face checkpoint"):
        cold_start.run(recipe(teacher="nowhere"), tmp_path / "a", resume=False)
    assert not (tmp_path / "a").exists()
    asked = recipe().collect.model_dump() | {"problems": {"riddles": 1.0}}
    with pytest.raises(ValueError, match=r"no source 'riddles'\. Known: arithmetic"):
        recipe(collect=asked)


@pytest.mark.slow
def test_texts_of_a_file_count_as_held_out(recipe, tmp_path):
    shown = arithmetic.distinct("rl", 0, 12)[4].facts["expression"]
    path = tmp_path / "exam.jsonl"
    exported = {
        "prompt": [{"role": "user", "content": f"Evaluate {shown}."}],
        "label": "1 2",
        "id": "a",
    }
    path.write_text(json.dumps(exported) + "\n")
    filters = {"min_words": 2, "distinct": 0.0, "against": str(path)}
    cold_start.run(recipe(filters=filters), tmp_path / "run", resume=False)
    card = read_card(tmp_path / "run" / "cold_start" / "data.jsonl")
    assert card["dropped"] == {"wrong": 12, "contaminated": 1} and card["evaluation_texts"] == 9


def test_a_file_without_a_text_keeps_nothing_out_and_is_refused(recipe, tmp_path):
    path = tmp_path / "exam.jsonl"
    path.write_text(json.dumps({"id": "a", "label": "2", "points": 3}) + "\n")
    with pytest.raises(RecipeError, match=r"filters\.against: .*exam\.jsonl holds no text"):
        teacher_data._held_out(recipe(filters={"against": str(path)}))


@pytest.mark.slow
def test_answers_may_hold_every_separator_of_lines(recipe, teacher, tmp_path, monkeypatch):
    _, engine = teacher
    marks = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"
    sample, write, calls = engine.sample, rejection_sampling._write, []

    def dying(prompts, sampling, told=None):
        calls.append(len(prompts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sample(prompts, sampling, told)

    def separated(path, answers):  # the tiny tokenizer may not know these characters
        texts = [answer["response"].replace("</think>", f"{marks}</think>") for answer in answers]
        write(path, [a | {"response": text} for a, text in zip(answers, texts, strict=True)])

    monkeypatch.setattr(engine, "sample", dying)
    monkeypatch.setattr(rejection_sampling, "_write", separated)
    with pytest.raises(KeyboardInterrupt):
        cold_start.run(recipe(), tmp_path, resume=False)
    cold_start.run(recipe(), tmp_path, resume=True)
    assert calls == [5, 5, 5, 2] and len(rows_of(tmp_path / "cold_start" / "data.jsonl")) == 12
    cold_start.run(recipe(), tmp_path, resume=True)


@pytest.mark.slow
def test_the_texts_to_keep_out_are_those_of_the_evaluation_also_of_other_sets(recipe, tmp_path):
    """The set that is asked holds nothing out."""
    asked = [{"question": f"What is {n}+{n}+1?", "answer": str(2 * n + 1)} for n in range(1, 10)]
    exam = [{"question": f"{row['question']} Think.", "answer": row["answer"]} for row in asked[:4]]
    for name, rows in (("asked", asked), ("exam", exam)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {"question": ["{question}"], "answer": "answer", "verifier": "math_answer"}
    sets = {
        "asked": own | {"path": str(tmp_path / "asked.jsonl")},
        "exam": own | {"path": str(tmp_path / "exam.jsonl"), "test": str(tmp_path / "exam.jsonl")},
    }
    collect = recipe().collect.model_dump() | {"problems": {"asked": 1.0}, "questions": 9}
    evaluation = {"sources": ["exam"], "problems": 8}
    filters = {"min_words": 2, "distinct": 0.0, "overlap": 3}
    made = recipe(collect=collect, sets=sets, evaluation=evaluation, filters=filters)
    cold_start.run(made, tmp_path / "run", resume=False)
    card = read_card(tmp_path / "run" / "cold_start" / "data.jsonl")
    assert card["evaluation_texts"] == 4 and card["dropped"]["contaminated"] == 4


def test_other_content_of_a_file_asks_for_other_data(recipe, teacher, tmp_path):
    path = tmp_path / "exam.jsonl"
    made = recipe(filters={"against": str(path)})
    keys = set()
    for text in ("one", "two"):
        path.write_text(json.dumps({"question": text}) + "\n")
        keys.add(teacher_data._asked(made, teacher[0]))
    assert len(keys) == 2
    keys.add(teacher_data._asked(recipe(evaluation={"problems": 9}), teacher[0]))
    assert len(keys) == 3


@pytest.mark.slow
def test_a_stage_that_trains_keeps_its_data_when_another_evaluation_is_asked_for(
    recipe, teacher, tmp_path, stopping
):
    _, engine = teacher
    with stopping(), pytest.raises(Stopped):
        cold_start.run(recipe(), tmp_path, resume=False)
    asked = list(engine.asked)
    cold_start.run(recipe(evaluation={"problems": 5}), tmp_path, resume=True)
    assert engine.asked == asked


def test_held_out_answers_are_judged_as_collected_ones(recipe):
    collect = recipe().collect.model_dump() | {
        "verifier_workers": 3, "verifier_limit_s": 7.0, "verifier_error_share": 0.25,
        "verifier_computer_algebra": "never", "verifier_service": "http://host:1",
    }  # fmt: skip
    judged = sft._judging(recipe(collect=collect))
    assert judged == {
        "judging": {"workers": 3, "limit_s": 7.0, "sandbox": "auto",
                    "facts": {"computer_algebra": "never"}},
        "verifier_service": "http://host:1", "error_share": 0.25,
    }  # fmt: skip
