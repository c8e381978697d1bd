"""Converts a GGUF file to a Hugging Face folder in float32, and verifies the weights by their hash.

Called by published-model.sh, with the package `gguf` on the path.
"""

import hashlib
import sys
from pathlib import Path

# sha256 of model.safetensors
WEIGHTS = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"


def convert(source: Path, folder: Path) -> str:
    """Write the model, tokenizer and generation config; returns the hash of the weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from veriloop.pipeline.model.policy import save_policy

    place = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    read = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    # transformers does not save a model that it read from GGUF; engines refuse the mark of one
    values = read.config.to_dict()
    values.pop("quantization_config", None)
    model = type(read)(type(read.config)(**values))
    model.load_state_dict(read.state_dict())
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    save_policy(model, tokenizer, folder)
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def require(weights: str, folder: Path) -> None:
    """End the program unless the weights in `folder` have the hash of the published ones."""
    if weights != WEIGHTS:
        sys.exit(f"{folder}: the weights have sha256 {weights}; expected {WEIGHTS}")


if __name__ == "__main__":
    require(convert(Path(sys.argv[1]), Path(sys.argv[2])), Path(sys.argv[2]))
