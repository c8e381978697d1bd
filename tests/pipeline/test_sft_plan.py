"""What a supervised recipe means, before it runs."""

from pipeline.config import LoraConfig
from pipeline.plan import plan
from pipeline.recipes import read


def lines(recipe):
    found = [line.strip().split("  ", 1) for line in plan(recipe).splitlines() if line]
    return {name: rest.strip() for name, rest in found}


def test_a_file_its_steps_and_its_cosine():
    told = lines(read("tiny/sft"))
    assert told["data"] == "448 rows of arithmetic"
    assert told["optimizer steps"] == "of 32 rows each, 3 epochs"
    assert told["learning rate"] == "0.001, on a cosine to 0.0001"
    assert told["held out"] == "48 rows" and told["evaluation"].startswith("256 problems")
    assert told["parameters"] == "578,400"


def test_how_much_is_sampled_and_at_most_kept():
    told = lines(read("tiny/cold_start"))
    assert told["sampled"] == "640 questions x 8 answers = 5,120"
    assert told["kept"].startswith("at most 400:") and told["teacher"] == "models/zero"
    told = lines(read("tiny/rejection_sft"))
    assert told["kept"].startswith("at most 1,600:")
    assert told["general"].startswith("533 rows at most, one to 3 of reasoning")


def test_the_papers_numbers_are_the_papers():
    for name, epochs in (("paper/cold_start", 3), ("paper/rejection_sft", 2)):
        recipe = read(name)
        told = lines(recipe)
        assert told["learning rate"] == "5e-05, on a cosine to 5e-06"
        assert told["optimizer steps"] == f"of 128 rows each, {epochs} epochs"
        assert recipe.data.max_tokens == 32_768 and recipe.collect.temperature == 1.0
        assert told["memory"].startswith("unknown: models/base")
    assert read("paper/rejection_sft").general.reasoning == 3


def test_adapters_leave_the_weights_alone_to_be_held():
    recipe = read("tiny/sft")
    trainer = recipe.trainer.model_copy(update={"lora": LoraConfig(rank=4)})
    told = lines(recipe.model_copy(update={"trainer": trainer}))
    assert told["memory"].startswith("4 bytes a parameter (weights, adapters beside them) = 2.2")
