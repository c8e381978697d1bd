"""Every recipe for a real model opens with where it is from, what to expect and what it needs."""

import json
import re
from pathlib import Path

import pytest

from veriloop.pipeline.config.load import read, read_values
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.dry_run import plan
from veriloop.pipeline.dry_run.plan import require_memory_of
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.launch import parse

FOLDER = Path(__file__).parents[2] / "recipes"
NAMES = sorted(
    p.relative_to(FOLDER).with_suffix("").as_posix()
    for kind in ("real", "cluster")
    for p in (FOLDER / kind).rglob("*.yaml")
)
WHOLE = [name for name in NAMES if read(name).stage == "r1"]
STAGES = [name for name in NAMES if name not in WHOLE]
SERVED = [name for name in STAGES if name.startswith("cluster/")]
SAMPLED = [name for name in STAGES if "sampler" in read_values(name) and name not in SERVED]
FIELDS = ("Reproduces", "Source", "Expected", "Hardware", "Memory", "Differs", "Begin", "Smaller")
LLAMA_70B = {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "vocab_size": 128256,
    "num_key_value_heads": 8, "intermediate_size": 28672, "tie_word_embeddings": False,
}  # fmt: skip
FLAG = r"--[a-z_.-]+ [\w./-]*\w"

every = pytest.mark.parametrize("name", NAMES)
every_stage = pytest.mark.parametrize("name", STAGES)


def in_folder(name):
    """Whether a recipe is a part of a whole run, or itself in a folder with its parts."""
    return name.count("/") > 1


def header(name):
    """The fields of the comment that a recipe opens with, each as one line."""
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    comment = lines[: next(at for at, line in enumerate(lines) if not line.startswith("#"))]
    fields = {}
    for line in comment[2:]:
        head = re.fullmatch(r"# ([A-Z]\w+) +(\S.*)", line)
        if head:
            last, fields[head[1]] = head[1], head[2]
        else:
            assert line.startswith("# " + " " * 12), f"{name}: {line}"
            fields[last] += " " + line[2:].strip()
    return fields


@every
def test_the_header_has_every_field_in_its_order(name):
    given = tuple(header(name))
    assert given == (FIELDS[:-1] if in_folder(name) else FIELDS)


@every
def test_a_source_can_be_found_and_an_expectation_is_a_figure_or_said_to_be_none(name):
    told = header(name)
    assert re.search(r"arXiv \d{4}\.\d{5}|github\.com/\w|huggingface\.co/\w", told["Source"])
    assert re.search(r"\d\.\d|no published figure", told["Expected"])
    assert "not measured" in told["Hardware"]


def test_what_is_no_header_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "FOLDER", tmp_path)
    (tmp_path / "bad.yaml").write_text("# One.\n#\n# Source    a\n# b\nstage: zero\n")
    with pytest.raises(AssertionError, match="bad: # b"):
        header("bad")


def planned(text):
    """GiB of each plan in a text."""
    return [float(size) for size in re.findall(r"memory +at most about ([\d.]+) GiB", text)]


@every_stage
def test_the_memory_that_is_stated_is_what_is_planned_and_fits_the_card(name, published):
    told, recipe = header(name), read(name)
    card = int(re.search(r"(\d+) GB card", told["Hardware"])[1])
    stated, room = map(int, re.search(r"(\d+) of (\d+) GiB", told["Memory"]).groups())
    if recipe.stage == "preference_rl":  # its reward model is an earlier stage's
        recipe = with_reward_model(recipe, "models/r1-sft")
    text = plan.plan(recipe)
    print(name, text)
    (size,) = planned(text)
    assert size < stated <= room <= card
    assert stated < size + 4  # CUDA and engines
    if "parameters" in told["Memory"]:
        stated = float(re.search(r"([\d.]+) G parameters", told["Memory"])[1])
        assert stated == pytest.approx(plan.shape_at(recipe.start).parameters / 1e9, abs=0.006)


@pytest.mark.parametrize("name", SAMPLED)
def test_the_torch_samplers_static_cache_is_planned_within_what_the_recipe_allows(name, published):
    recipe = read(name)
    torch_sampler = recipe.sampler.model_copy(update={"engine": "torch"})
    text = plan.plan(recipe.model_copy(update={"sampler": torch_sampler}))
    print(name, text)
    told = re.search(
        r"- sampler cache +([\d.,]+) ([GM])iB: (\d+) sequences of ([\d,]+) tokens", text
    )
    size, rows, tokens = (float(told[n].replace(",", "")) for n in (1, 3, 4))
    gib = size / (1024 if told[2] == "M" else 1)
    assert 0 < gib <= torch_sampler.cache_gib and 0 < rows <= torch_sampler.max_batch
    assert tokens % 256 == 0 and "- sampler logits" in text


@pytest.mark.parametrize("name", [n for n in SAMPLED if not n.startswith("real/smollm2/")])
def test_on_one_card_the_engine_is_apart_and_asleep_while_the_policy_learns(name):
    sampler = read(name).sampler
    assert sampler.apart and sampler.sleep


def with_reward_model(recipe, folder):
    return recipe.model_copy(
        update={"reward": recipe.reward.model_copy(update={"reward_model": folder})}
    )


def smaller():
    """(recipe, flags) of each run of flags that the headers have for other cards."""
    for name in STAGES:
        for run in re.findall(rf"{FLAG}(?: {FLAG})*", header(name).get("Smaller", "")):
            yield name, run


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flags"), list(smaller()))
def test_the_flags_for_smaller_cards_are_flags(name, flags):
    made = parse(read(name).stage, [name, *flags.split()]).recipe
    assert made != read(name)


@every
def test_recipes_that_a_header_names_are_there(name):
    text = " ".join(header(name).values())
    for other in re.findall(r"\breal/[\w./-]*\w", text):
        assert other in NAMES or (FOLDER / other).is_dir(), other


@pytest.mark.parametrize("name", WHOLE)
def test_every_stage_of_a_whole_run_fits_the_card_that_its_header_names(name, published):
    stated, room = map(int, re.search(r"(\d+) of (\d+) GiB", header(name)["Memory"]).groups())
    sizes = planned(plan.plan(read(name)))
    assert len(sizes) == len(read(name).stages)
    assert max(sizes) < stated < max(sizes) + 4 and stated < room


def test_the_large_whole_run_trains_adapters_wherever_its_policy_learns():
    ranks = {step.name: step.recipe.trainer.lora.rank for step in steps(read("real/r1_7b"))}
    full = {name for name, rank in ranks.items() if not rank}
    assert full == {"reward_model", "distill"}


def test_the_page_lists_every_recipe_with_its_card():
    page = (FOLDER.parent / "docs/real.md").read_text()
    listed = re.findall(r"^\| `(real/\S+)` \|[^|]*\| (\d+) GB \|", page, re.MULTILINE)
    cards = {name: re.search(r"(\d+) GB card", header(name)["Hardware"])[1] for name in NAMES}
    real = {name: card for name, card in cards.items() if name not in SERVED}
    assert dict(listed) == {name: card for name, card in real.items() if not in_folder(name)}
    page = (FOLDER.parent / "docs/cluster.md").read_text()
    listed = re.findall(r"^\| `(cluster/\S+)` \|[^|]*\| (\d+) x (\d+) \|", page, re.MULTILINE)
    trainers = {name: read(name).cluster.trainer for name in SERVED}
    assert {name: (int(nodes), int(ranks)) for name, nodes, ranks in listed} == {
        name: (trainer.nodes, trainer.ranks) for name, trainer in trainers.items()
    }


def test_a_figure_on_the_page_stands_in_the_header_of_its_recipe():
    page = (FOLDER.parent / "docs/real.md").read_text()
    for name, told in re.findall(r"^\| `(real/\S+)` \|.*\| ([^|]*) \|$", page, re.MULTILINE):
        stated = " ".join(header(name).values()).replace("->", "→")
        figures = re.findall(r"\b\d+\.\d+\b", told)
        assert all(figure in stated for figure in figures), name


@pytest.mark.parametrize("name", SERVED)
def test_a_recipe_for_several_cards_fits_them_and_not_an_eighth(name, published):
    cluster = read(name).cluster
    require_memory_of(read(name))
    few = cluster.ranks // 8
    flags = ["--cluster.trainer.nodes", "1", "--cluster.trainer.ranks", str(few)]
    with pytest.raises(RecipeError, match=r"cluster\.trainer\.(gpu|host)_gib="):
        require_memory_of(parse("zero", [name, *flags]).recipe)


@pytest.fixture
def llama_70b(published):
    """A folder with the config.json of a model of 70 billion parameters."""
    path = published / "models/Llama-3.1-70B"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **LLAMA_70B}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "size", "nodes"),
    [
        ("zero_math_qwen2.5_7b", "Qwen2.5-7B", 7.62, 1),
        ("zero_math_qwen2.5_7b", "Qwen2.5-7B", 7.62, 64),
        ("dapo_qwen2.5_32b", "Qwen2.5-32B", 32.76, 2),
        ("dapo_qwen2.5_32b", "Qwen2.5-32B", 32.76, 64),
        ("dapo_qwen2.5_32b", "Llama-3.1-70B", 70.55, 16),
        ("dapo_qwen2.5_32b", "Llama-3.1-70B", 70.55, 64),
    ],
)
def test_models_of_7_to_70_billion_parameters_are_planned_on_8_to_512_cards(
    name, model, size, nodes, llama_70b
):
    limits = ["--cluster.trainer.gpu-gib", "79", "--cluster.trainer.host-gib", "3200"]
    flags = ["--start", f"models/{model}", "--cluster.trainer.nodes", str(nodes), *limits]
    recipe = parse("zero", [f"cluster/{name}", *flags]).recipe
    require_memory_of(recipe)
    text = plan.plan(recipe)
    parameters = int(re.search(r"parameters +([\d,]+)", text)[1].replace(",", ""))
    assert parameters / 1e9 == pytest.approx(size, abs=0.006)
    assert f"{nodes} x 8 = {8 * nodes} ranks" in text and planned(text)[0] < 79
    moments = re.search(r"- optimizer moments +([\d,.]+) ([GM])iB", text)
    held = float(moments[1].replace(",", "")) * {"G": 2**30, "M": 2**20}[moments[2]]
    assert held == pytest.approx(8 * parameters / (8 * nodes), rel=0.01)
    assert f"{2 * parameters / 2**20:,.1f} MiB to the sampler" in text


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (["gpu-gib", "79"], r"gpu_gib=79: .* times as many ranks would do"),
        (["host-gib", "500"], r"host_gib=500: .*; use machines with more memory, or fewer ranks"),
    ],
)
def test_70_billion_parameters_do_not_fit_eight_cards(limit, said, llama_70b):
    key, gib = limit
    flags = ["--cluster.trainer.nodes", "1", "--cluster.trainer.gpu-gib", "0"]
    flags += ["--cluster.trainer.host-gib", "0", f"--cluster.trainer.{key}", gib]
    words = ["cluster/dapo_qwen2.5_32b", "--start", "models/Llama-3.1-70B", *flags]
    with pytest.raises(RecipeError, match=said):
        require_memory_of(parse("zero", words).recipe)


@pytest.mark.parametrize("name", SERVED)
def test_servers_have_time_for_the_weights_and_those_of_ray_room_for_half_of_their_answers(name):
    recipe = read(name)
    cluster, rollout = recipe.cluster, recipe.rollout
    assert cluster.deadlines.sync_s >= 600
    if cluster.samplers.count:  # the others are given their cache by whoever starts them
        token = 2 * 28 * 4 * 128 * 2  # bytes of keys and values in Qwen2.5-7B
        length = rollout.max_prompt + rollout.max_tokens
        asks = rollout.prompts * rollout.per_prompt / cluster.samplers.count
        assert recipe.sampler.max_batch >= asks
        assert recipe.sampler.cache_gib * 2**30 >= token * length * asks / 2
