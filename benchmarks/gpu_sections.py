"""The sections of `benchmarks/gpu.py`; on a GPU each runs in a separate process."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import gpu_waterfall
import torch
from grpo_steps import answers, stepper

from veriloop.data import corpus
from veriloop.data.tokenizer import train
from veriloop.pipeline.config.sections import SamplerConfig, TrainerConfig
from veriloop.pipeline.dry_run.memory import shape_of, trainer_bytes
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.lora import adapted, merged
from veriloop.pipeline.model.policy import save_policy, without_dropout
from veriloop.pipeline.model.prepare import DTYPES, prepare
from veriloop.pipeline.offline import profile
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling

GIB = 2**30
SHAPES: dict[str, dict[str, Any]] = {  # as Qwen2.5 has them
    "0.5B": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "1.5B": {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "7B": {
        "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152_064,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 2048,
        "tie_word_embeddings": True,
    },
}  # fmt: skip
CARDS = {  # dense bf16 products, FLOP/s; NVIDIA's data sheets, where those with sparsity are twice
    "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12,
    "L4": 121e12, "A10": 125e12, "RTX 4090": 165e12,
}  # fmt: skip
PROMPT = 512  # of the positions of a sequence


def model_of(name: str, device: str, **changes: int) -> Any:
    """A Qwen2 of this shape with random weights, created on its device."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[name] | changes, max_position_embeddings=65_536)
    with torch.device(device):
        return without_dropout(Qwen2ForCausalLM(config)).train()


def trainer_of(
    device: str, length: int, *, adapters: bool = False, recompute: str = "all"
) -> TrainerConfig:
    """Rows of one sequence, one row per pass, as for large models on one GPU."""
    return TrainerConfig.model_validate({
        "device": device, "compute": "bfloat16", "gradient_checkpointing": True,
        "recompute": recompute,
        "row": length, "rows": 1, "lora": {"rank": 32 if adapters else 0},
    })  # fmt: skip


def update(
    name: str,
    device: str,
    *,
    length: int,
    count: int,
    repeats: int,
    recompute: str = "cheap",
) -> dict[str, Any]:
    """Seconds, tokens per second, MFU, memory and waterfall of updates on `count` sequences of
    `length` tokens."""
    shape, adapters = name.partition("+")[::2]
    model = model_of(shape, device)
    prompt = min(PROMPT, length // 2)
    graded = answers(count, prompt, length - prompt, SHAPES[shape]["vocab_size"])
    trainer = trainer_of(device, length, adapters=bool(adapters), recompute=recompute)
    prediction = predicted(name, trainer, length)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    step = stepper(model, graded, trainer)
    first_s = timed(step, device)  # compiles
    seconds = statistics.median(timed(step, device) for _ in range(repeats))
    peak_gib = torch.cuda.max_memory_allocated() / GIB if device != "cpu" else None
    tokens, least = count * (length - 1), operations(model, length)
    speed, source = roof(model, device)
    passes = gpu_waterfall.head(model, trainer, length - prompt)
    passes()
    return prediction | {
        "recompute": recompute,
        "first_s": first_s,
        "seconds": seconds,
        "tokens_s": tokens / seconds,
        "mfu": least * tokens / seconds / speed,
        "roof_tflops": speed / 1e12,
        "roof": source,
        "roof_s": least * tokens / speed,
        "peak_gib": peak_gib,
        "parts": gpu_waterfall.by_part(step),
        "head_s": count * timed(passes, device),
        "kinds": gpu_waterfall.by_kind(step, device, seconds),
    }


def predicted(name: str, trainer: TrainerConfig, length: int) -> dict[str, Any]:
    """The prediction of `--dry-run`."""
    sizes = SHAPES[name.partition("+")[0]]
    count = sum(p.numel() for p in model_of(name.partition("+")[0], "meta").parameters())
    shape = shape_of(sizes, count)
    assert shape is not None, "these shapes have everything that is asked"
    held = trainer_bytes(shape, trainer, length)
    return {
        "model": name,
        "parameters": count,
        "length": length,
        "predicted_gib": sum(held.values()) / GIB,
        "predicted": {part: size / GIB for part, size in held.items()},
    }


def operations(model: Any, length: int) -> float:
    """FLOPs per position, forward and backward: six per weight, four per frozen weight, and
    attention to half of the other positions on average. Recomputation by checkpointing is not
    counted."""
    config = model.config
    weights = sum(p.numel() for n, p in model.named_parameters() if not n.endswith(("_A", "_B")))
    if not config.tie_word_embeddings:
        weights -= config.vocab_size * config.hidden_size  # looked up, not multiplied
    each = 6 if adapted(model) is None else 4
    return each * weights + 6 * config.num_hidden_layers * config.hidden_size * length


def roof(model: Any, device: str) -> tuple[float, str]:
    """Peak FLOP/s in bfloat16: that of the GPU's data sheet, or measured here."""
    if device != "cpu":
        name = torch.cuda.get_device_name()
        for known, flops in CARDS.items():
            if known in name:
                return flops, f"data sheet of {known}"
    rows = 256 if device == "cpu" else profile.ROWS
    return profile.matmul_speed(model, DTYPES["bfloat16"], repeats=3, rows=rows).flops, "measured"


def vocabularies(sizes: tuple[int, ...], device: str, length: int) -> list[dict[str, Any]]:
    """Peak memory of an update by vocabulary, minus the memory of the head's weights, their
    gradients and two moments."""
    rows = []
    for size in sizes:
        model = model_of("1.5B", device, num_hidden_layers=2, vocab_size=size)
        trainer = trainer_of(device, length)
        step = stepper(model, answers(2, PROMPT, length - PROMPT, size), trainer)
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        peak = torch.cuda.max_memory_allocated()
        head = (4 + 2) * 4 * size * model.config.hidden_size
        rows.append({"vocabulary": size, "peak_gib": peak / GIB, "rest_gib": (peak - head) / GIB})
        del model, step
        torch.cuda.empty_cache()
    return rows


def sampler(
    name: str,
    device: str,
    *,
    engine: str,
    graphs: bool,
    prompts: int,
    tokens: int,
    cache_gib: float,
) -> dict[str, Any]:
    """Tokens per second, and on a GPU the seconds to sleep and to wake with new weights."""
    card = device != "cpu"
    config = SamplerConfig(
        engine="vllm" if engine == "vllm" else "torch",
        device="auto" if engine == "vllm" else device,
        dtype="bfloat16" if card else "float32",
        cache_gib=cache_gib,
        sleep=card,
        graphs=graphs,
    )
    model = model_of(name, device)
    with saved(model) as folder:
        began = time.monotonic()
        opened = open_sampler(config, str(folder), max_length=64 + tokens, say=print)
        started = time.monotonic() - began
        prompt_ids = [[1 + i % 200, 5, 9, 7] for i in range(prompts)]
        sampling = Sampling(per_prompt=1, temperature=1.0, max_tokens=tokens, seed=0)
        opened.sample(prompt_ids[:2], sampling)  # warms
        began = time.monotonic()
        groups = opened.sample(prompt_ids, sampling)
        seconds = time.monotonic() - began
        row = {
            "model": name,
            "engine": opened.name,
            "graphs": graphs,
            "start_s": started,
            "tokens_s": sum(len(completion.ids) for group in groups for completion in group)
            / seconds,
        }
        if card:
            row |= _slept(opened, prepare(model, TrainerConfig(device=device)))
        opened.close()
    return row


def _slept(engine: Any, model: Any) -> dict[str, float]:
    device = device_of(model)
    before = torch.cuda.mem_get_info(device)[0]
    sleep_s = timed(engine.sleep, "cuda")
    freed = torch.cuda.mem_get_info(device)[0] - before
    wake_s = timed(lambda: engine.load_weights(merged(model), 1), "cuda")
    return {"sleep_s": sleep_s, "wake_s": wake_s, "freed_gib": freed / GIB}


@contextmanager
def saved(model: Any) -> Iterator[Path]:
    """The model as a checkpoint with a small tokenizer, in bfloat16."""
    random = Random(0)
    texts = (corpus.document(random, corpus.Mix()) for _ in range(200))
    tokenizer = train(texts, 300)
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        save_policy(model, tokenizer, Path(folder))
        yield Path(folder)


def timed(call: Callable[[], Any], device: str) -> float:
    """Seconds, including the GPU's work."""
    if device != "cpu":
        torch.cuda.synchronize()
    began = time.monotonic()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.monotonic() - began
