import json
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file

from tokencritic.errors import InputError
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.training.image_tasks import TokenizerObjective, TokenizerTask
from tokencritic.training.loop import train
from tokencritic.training.perceptual import Lpips
from tokencritic.training.settings import OptimizerSettings, TrainingSettings

CONFIG = CompactConfig(image_size=8, width=16, codebook_size=32)


class Blobs:
    """Bright squares at random places."""

    def __len__(self):
        return 4000

    def facts(self):
        return {"source": "blobs"}

    def reading_ahead(self, parts, images, device):
        return nullcontext()

    def __call__(self, rows, step, device):
        images = torch.empty(len(rows), 1, 8, 8)
        for image, number in zip(images, rows.tolist(), strict=True):
            rng = torch.Generator().manual_seed(number)
            image[0] = 0.1 * torch.rand(8, 8, generator=rng)
            row, column = torch.randint(0, 5, (2,), generator=rng).tolist()
            image[0, row : row + 4, column : column + 4] += 0.8
        return images


def make_task():
    torch.manual_seed(0)
    return TokenizerTask(CompactTokenizer(CONFIG), Blobs(), TokenizerObjective())


def run(folder, task, **settings):
    optimizer = OptimizerSettings(learning_rate=3e-3)
    train(task, folder, optimizer, TrainingSettings(**{"batch_size": 32, "log_every": 1, **settings}))


def test_a_tokenizer_learns_keeps_its_codebook_alive_and_shows_what_it_restores(tmp_path):
    run(tmp_path, make_task(), steps=150)
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    first, last, validation = log[0], log[-2], log[-1]
    assert last["squared_error"] < 0.25 * first["squared_error"]
    assert last["perplexity"] > 16
    assert validation["kind"] == "validation"
    assert validation["loss"] < 0.02
    tokenizer, images = CompactTokenizer.from_pretrained(tmp_path / "tokenizer"), Blobs()(torch.arange(64), None, None)
    assert (tokenizer.decode(tokenizer.encode(images)) - images).square().mean() < 0.02
    assert (tmp_path / "pictures/reconstructions.png").exists()


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    """With its codebook's averages."""
    run(tmp_path / "whole", make_task(), steps=14)

    class Stopped(Exception):
        pass

    task = make_task()
    ask = task.loss

    def cut_off_at_9(network, rows, step):
        if step == 9:
            raise Stopped
        return ask(network, rows, step)

    monkeypatch.setattr(task, "loss", cut_off_at_9)
    with pytest.raises(Stopped):
        run(tmp_path / "cut", task, steps=14, keep_every=4, checkpoint_seconds=1e9)
    run(tmp_path / "cut", make_task(), steps=14)
    whole, cut = (load_file(tmp_path / name / "tokenizer/model.safetensors") for name in ("whole", "cut"))
    assert all(value.equal(cut[name]) for name, value in whole.items())


def test_a_tokenizer_trains_in_bfloat16_and_with_any_seed(tmp_path):
    torch.manual_seed(0)
    task = TokenizerTask(CompactTokenizer(CONFIG), Blobs(), TokenizerObjective(), seed=2**63 - 1)
    run(tmp_path, task, steps=2, precision="bfloat16")
    assert all(value.isfinite().all() for value in task.state_dict().values())


def test_accumulated_parts_are_one_batch(tmp_path):
    for name, parts in (("one", 1), ("two", 2)):
        run(tmp_path / name, make_task(), steps=6, accumulation=parts)
    one, two = (load_file(tmp_path / name / "tokenizer/model.safetensors") for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-3, atol=1e-3, msg=name)


def test_tensorboard_gets_the_numbers_and_the_pictures(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, make_task(), steps=3, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    assert {"training/loss", "training/perplexity", "validation/psnr", "validation/perplexity"} <= set(tags["scalars"])
    assert tags["images"] == ["reconstructions"]
    assert [event.step for event in events.Scalars("training/loss")] == [0, 1, 2]


def test_the_perceptual_term_sees_enlarged_images_from_its_step_on():
    seen = []

    def distance(reconstruction, images):
        seen.append((reconstruction.shape, images.shape))
        return torch.ones(len(images))

    torch.manual_seed(0)
    objective = TokenizerObjective(perceptual=0.5, perceptual_scale=4, perceptual_after=2)
    task = TokenizerTask(CompactTokenizer(CONFIG), Blobs(), objective, distance)
    plain, rows = TokenizerTask(task.model, Blobs(), TokenizerObjective()), torch.arange(4)
    for step, added in ((0, 0.0), (1, 0.0), (2, 0.5)):
        values = (part.loss(task.model, rows, step).values for part in (task, plain))
        torch.testing.assert_close(next(values), next(values) + added)
    assert seen == [((4, 1, 32, 32), (4, 1, 32, 32))]
    with pytest.raises(InputError, match="perceptual_scale is 0; it must be at least 1"):
        TokenizerObjective(perceptual_scale=0)


def test_a_run_does_not_go_on_with_another_perceptual_network_or_none(tmp_path):
    torch.manual_seed(0)
    first, second = Lpips(), Lpips()
    objective = TokenizerObjective(perceptual=0.5, perceptual_scale=4, perceptual_after=9)
    run(tmp_path, TokenizerTask(CompactTokenizer(CONFIG), Blobs(), objective, first), steps=1)
    for other in (second, None):
        with pytest.raises(InputError, match=r"has perceptual .*, and this run has"):
            run(tmp_path, TokenizerTask(CompactTokenizer(CONFIG), Blobs(), objective, other), steps=2)
