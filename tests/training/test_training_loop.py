import json

import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.training.checkpoint import load_checkpoint, save_checkpoint
from tokencritic.training.loop import RunSettings, train
from tokencritic.training.optimizer import Average, OptimizerSettings, learning_rate, make_optimizer
from tokencritic.training.tokenizer_task import TokenizerObjective, TokenizerTask

CONFIG = CompactConfig(image_size=8, width=16, codebook_size=32)
OPTIMIZER = OptimizerSettings(learning_rate=3e-3)


def blobs(step, batch=32):
    """Bright squares at random places."""
    rng = torch.Generator().manual_seed(step)
    images = 0.1 * torch.rand(batch, 1, 8, 8, generator=rng)
    for image, (row, column) in zip(images, torch.randint(0, 5, (batch, 2), generator=rng).tolist(), strict=True):
        image[0, row : row + 4, column : column + 4] += 0.8
    return images


def make_task(**objective):
    torch.manual_seed(0)
    return TokenizerTask(CompactTokenizer(CONFIG), blobs, TokenizerObjective(**objective))


def weights(run):
    return CompactTokenizer.from_pretrained(run / "tokenizer").state_dict()


def test_a_tokenizer_learns_and_keeps_its_codebook_alive(tmp_path):
    train(make_task(), tmp_path, OPTIMIZER, RunSettings(steps=150, log_every=10))
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert log[-1]["squared_error"] < 0.25 * log[0]["squared_error"]
    assert log[-1]["perplexity"] > 16
    tokenizer, images = CompactTokenizer.from_pretrained(tmp_path / "tokenizer"), blobs(10_000)
    assert (tokenizer.decode(tokenizer.encode(images)) - images).square().mean() < 0.02


@pytest.mark.parametrize(
    "objective", [{}, {"adversarial": 0.01, "adversarial_after": 4, "adaptive": True, "gradient_penalty": 1.0}]
)
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch, objective):
    train(make_task(**objective), tmp_path / "whole", OPTIMIZER, RunSettings(steps=20))

    class Stopped(Exception):
        pass

    task = make_task(**objective)
    ask = task.loss

    def cut_off_at_13(step):
        if step == 13:
            raise Stopped
        return ask(step)

    monkeypatch.setattr(task, "loss", cut_off_at_13)
    every_step = RunSettings(steps=20, checkpoint_seconds=0, log_every=1)
    with pytest.raises(Stopped):
        train(task, tmp_path / "cut", OPTIMIZER, every_step)
    assert len(list((tmp_path / "cut").glob("checkpoint-*.pt"))) == 2
    with (tmp_path / "cut/log.jsonl").open("a") as file:
        file.write('{"step": 13, "half')  # the cut came in the middle of a line
    train(make_task(**objective), tmp_path / "cut", OPTIMIZER, every_step)
    for (name, one), other in zip(weights(tmp_path / "whole").items(), weights(tmp_path / "cut").values(), strict=True):
        assert one.equal(other), name
    log = (tmp_path / "cut/log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == list(range(20))


def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(tmp_path, capsys):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {"step": step})
    newest = tmp_path / "checkpoint-000000003.pt"
    for damage in (b"", newest.read_bytes()[:200], b"\0" * 500):
        newest.write_bytes(damage)
        assert load_checkpoint(tmp_path) == {"step": 2}
        assert "checkpoint-000000003.pt is damaged" in capsys.readouterr().out
        newest.with_suffix(".damaged").replace(newest)
    assert load_checkpoint(tmp_path / "empty") is None


def test_damaged_checkpoints_do_not_displace_new_ones(tmp_path):
    for step in (440, 500):
        save_checkpoint(tmp_path, step, {"step": step})
    for file in tmp_path.glob("*.pt"):
        file.write_bytes(b"")
    assert load_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, 60, {"step": 60})
    assert load_checkpoint(tmp_path) == {"step": 60}


def test_a_run_is_not_continued_with_other_settings(tmp_path):
    train(make_task(), tmp_path, OPTIMIZER, RunSettings(steps=2))
    with pytest.raises(InputError, match="has another objective"):
        train(make_task(adversarial=0.1), tmp_path, OPTIMIZER, RunSettings(steps=4))
    other = TokenizerTask(CompactTokenizer(CompactConfig(image_size=8, width=32)), blobs, TokenizerObjective())
    with pytest.raises(InputError, match="has another config"):
        train(other, tmp_path, OPTIMIZER, RunSettings(steps=4))


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path, monkeypatch):
    task = make_task()
    ask = task.loss
    monkeypatch.setattr(task, "loss", lambda step: (ask(step)[0] * (torch.nan if step == 3 else 1), {}))
    with pytest.raises(InputError, match="the loss is nan at step 3"):
        train(task, tmp_path, OPTIMIZER, RunSettings(steps=5, checkpoint_seconds=0))
    assert load_checkpoint(tmp_path)["step"] == 3


def test_the_learning_rate_rises_and_falls_to_0():
    settings = OptimizerSettings(learning_rate=2.0, warmup=0.1)
    rates = [learning_rate(settings, progress / 100) for progress in range(101)]
    assert rates[0] == 0
    assert rates.index(max(rates)) == 10
    assert rates[50] == pytest.approx(1.0)
    assert rates[100] == pytest.approx(0, abs=1e-12)


def test_matrices_decay_and_vectors_do_not():
    groups = make_optimizer(CompactTokenizer(CONFIG), OptimizerSettings(weight_decay=0.1)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(p.ndim >= 2 for p in groups[0]["params"])
    assert all(p.ndim < 2 for p in groups[1]["params"])


def test_the_average_warms_up():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    average = Average(model, decay=0.999)
    torch.nn.init.ones_(model.weight)
    average.update(model, step=0)
    assert average.values["weight"].item() == pytest.approx(0.9)  # 1 - 1/10, not 1 - 0.999


@pytest.mark.parametrize(
    "settings", [{}, {"steps": 1, "minutes": 1.0}, {"steps": 0}, {"minutes": -1.0}, {"minutes": float("nan")}]
)
def test_a_run_has_one_positive_length(settings):
    with pytest.raises(InputError, match="steps is"):
        RunSettings(**settings)
