"""Run by torchrun: the anonymous memory of a rank while it reads its rows of a large model.

`torchrun ... tests/pipeline/cluster/memory.py FILE` writes the bytes of the model, of its largest
tensor and of what each rank held at most beyond an empty model: while reading, and afterwards.
"""

import json
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import torch
import torch.distributed as dist

from veriloop.pipeline.cluster import shard
from veriloop.pipeline.cluster.rank_group import join, leave
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.training.stop import ProcessEnd


def anonymous():
    """Bytes of this process that are in no file."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


class Peak:
    """The most anonymous memory since the last `taken`."""

    def __init__(self):
        self.most = 0
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            self.most = max(self.most, anonymous())
            sleep(0.001)

    def taken(self):
        most, self.most = max(self.most, anonymous()), 0
        return most


def save(folder):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32_000, hidden_size=512, intermediate_size=2048, num_hidden_layers=16,
        num_attention_heads=8, num_key_value_heads=4,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    sizes = [4 * parameter.numel() for parameter in model.parameters()]
    return {"model": sum(sizes), "largest": max(sizes)}


def main(file):
    end = ProcessEnd()
    torch.set_num_threads(1)
    group = join("cpu", 300.0)
    with TemporaryDirectory() as root:
        facts = [save(Path(root)) if group.rank == 0 else {}, root]
        dist.broadcast_object_list(facts)
        peak, filled, fill = Peak(), [], shard.fill
        # What rank 0 saved is freed; this is the first pass of any model through torch's kernels.
        model = prepare(load_policy(facts[1], empty=True), TrainerConfig(device="cpu"))
        shard.fill = lambda *values: (peak.taken(), fill(*values), filled.append(peak.taken()))
        before = anonymous()
        group.shard(model)
        afterwards = anonymous()
        ranks = group.collect({"reading": filled[0] - before, "afterwards": afterwards - before})
    if group.rank == 0:
        Path(file).write_text(json.dumps({**facts[0], "ranks": ranks}))
        print(json.dumps({**facts[0], "ranks": ranks}))
    leave()
    end.code = 0


if __name__ == "__main__":
    main(sys.argv[1])
