"""The reward function inside TRL's own trainer, where TRL is installed."""

import pytest

from verifiers.adapters import grading
from verifiers.adapters.trl import reward
from verifiers.pool import VerifierPool

trl = pytest.importorskip("trl", reason="TRL is not installed")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_training_step_of_trl_logs_our_rewards(tiny_checkpoint, tmp_path, monkeypatch):
    from datasets import Dataset

    rows = {"prompt": ["1 + 1 ="] * 4, "answer": ["2"] * 4}
    told = trl.GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=1,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        bf16=False,
    )
    with VerifierPool() as pool:
        monkeypatch.setattr(grading, "pool", lambda: pool)
        trainer = trl.GRPOTrainer(
            model=str(tiny_checkpoint(tied=False)),
            reward_funcs=[reward("number"), reward("think_format")],
            args=told,
            train_dataset=Dataset.from_dict(rows),
        )
        trainer.train()
    logged = {key: value for row in trainer.state.log_history for key, value in row.items()}
    assert logged["rewards/number/mean"] == 0.0 and logged["rewards/think_format/mean"] == 0.0
