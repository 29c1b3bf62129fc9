import fcntl
import json
import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Module
from training.run_task import CONFIG, SETTINGS, PatternTask, assert_equal_weights, log_of, newest, run, weights

from tokencritic.distribution import ALONE
from tokencritic.errors import InputError
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import Block
from tokencritic.randomness import example_seeds
from tokencritic.training.learner import Learner, make_optimizer
from tokencritic.training.run_folder import best_checkpoint, load_tensors
from tokencritic.training.settings import OptimizerSettings, TrainingSettings

SCRIPT = Path(__file__).with_name("run_task.py")
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "error",
    "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), str(SCRIPT.parents[2] / "src")]),
}


def processes(folder, ranks=1, **settings):
    """The same in a separate process, or in several under torchrun."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    # Standard output and error go to a file, which remains after a kill.
    with (folder.parent / f"{folder.name}.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, *launch, str(SCRIPT), str(folder), json.dumps(settings)],
            env={**ENVIRONMENT, "PYTHONWARNINGS": "default"} if ranks > 1 else ENVIRONMENT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def finished(process, folder):
    assert process.wait(120) == 0, (folder.parent / f"{folder.name}.log").read_text()


def assert_close_weights(one, other):
    second = weights(other)
    for name, value in weights(one).items():
        torch.testing.assert_close(value, second[name], rtol=1e-3, atol=2e-4, msg=name)


def test_a_run_learns_logs_and_leaves_a_model_of_averaged_weights(tmp_path):
    run(tmp_path, steps=60, checkpoint_seconds=0.5)
    log = log_of(tmp_path)
    assert [line["step"] for line in log] == list(range(60))
    assert log[-1]["loss"] < log[0]["loss"]
    assert log_of(tmp_path, "validation")[-1]["step"] == 60
    assert json.loads((tmp_path / "run.json").read_text())["name"] == "generator"
    own = PatternTask().model.state_dict()
    load_tensors(newest(tmp_path), state := {f"average.{name}": torch.empty_like(own[name]) for name in own})
    saved = Generator.from_pretrained(tmp_path / "generator").state_dict()
    assert all(saved[name].equal(state[f"average.{name}"]) for name in saved)


def test_killed_at_random_moments_and_run_again_a_run_ends_with_the_same_weights(tmp_path):
    """SIGKILL may arrive while the process starts, trains or writes a checkpoint."""
    run(tmp_path / "whole", steps=60)
    cut, settings, killed = tmp_path / "cut", {"steps": 60, "checkpoint_seconds": 0.1}, 0
    for seconds in (0.02, *(random.uniform(0.1, 1.5) for _ in range(2))):
        killed += processes(cut, **settings, killed_after=seconds).wait(120) == -signal.SIGKILL
    assert killed >= 1
    assert processes(cut, **settings, signal_at=50).wait(120) in (0, -signal.SIGKILL)  # 0 if step 50 was done before
    finished(processes(cut, **settings), cut)
    assert_equal_weights(tmp_path / "whole", cut)
    assert [line["step"] for line in log_of(cut)] == list(range(60))
    assert [line["loss"] for line in log_of(cut)] == [line["loss"] for line in log_of(tmp_path / "whole")]


@pytest.mark.parametrize("distribution", ["ddp", "fsdp"])
def test_two_ranks_killed_go_on_as_one_and_as_two(tmp_path, distribution):
    """Without dropout, which depends on the rank, the result equals that of one rank up to rounding."""
    settings = {"steps": 24, "checkpoint_seconds": 0, "dropout": 0.0, "distribution": distribution}
    settings |= {"validate_seconds": 0}  # validation swaps in the averaged weights and must restore the others
    whole = {name: value for name, value in settings.items() if name != "dropout"}
    run(tmp_path / "whole", PatternTask(dropout=0.0), **whole)
    cut = tmp_path / "cut"
    assert processes(cut, 2, **settings, signal_at=9).wait(120) != 0
    assert 1 <= int(newest(cut).name) <= 9
    assert processes(cut, 1, **settings, signal_at=17).wait(120) == -signal.SIGKILL
    finished(processes(cut, 2, **settings), cut)
    assert (tmp_path / "cut.log").read_text().count("resuming at step") == 2
    assert_close_weights(tmp_path / "whole", cut)
    one, two = ([line["loss"] for line in log_of(place)] for place in (tmp_path / "whole", cut))
    assert one == pytest.approx(two, rel=1e-4)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_two_ranks_have_the_losses_of_one(tmp_path, accumulation):
    settings = {"steps": 20, "accumulation": accumulation}
    run(tmp_path / "one", PatternTask(dropout=0.0), steps=20)
    finished(processes(tmp_path / "two", 2, dropout=0.0, **settings), tmp_path / "two")
    for name in ("loss", "norm"):
        one, two = ([line[name] for line in log_of(tmp_path / place)] for place in ("one", "two"))
        assert one == pytest.approx(two, rel=1e-4), name
    assert_close_weights(tmp_path / "one", tmp_path / "two")


def test_accumulation_changes_nothing_but_rounding(tmp_path):
    run(tmp_path / "one", PatternTask(dropout=0.0), steps=12)
    run(tmp_path / "four", PatternTask(dropout=0.0), steps=12, accumulation=4)
    assert_close_weights(tmp_path / "one", tmp_path / "four")


@pytest.mark.parametrize(("number", "ranks"), [(signal.SIGTERM, 1), (signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_asked_to_stop_a_run_saves_and_says_so(tmp_path, number, ranks):
    """All ranks stop after the same step, whichever rank gets the signal."""
    folder = tmp_path / "run"
    finished(processes(folder, ranks, steps=100_000, signal_at=3, number=number, rank=ranks - 1), folder)
    assert "stopped; rerun the command to resume" in (tmp_path / "run.log").read_text()
    assert int(newest(folder).name) == 4
    run(folder, steps=5)


def test_asked_to_stop_while_it_validates_a_run_keeps_what_it_found(tmp_path):
    task = PatternTask()
    task.signal_at, task.number = 2**40, signal.SIGTERM  # the step number of validation
    run(tmp_path, task, steps=100_000, validate_seconds=0)
    assert best_checkpoint(tmp_path) == newest(tmp_path)
    assert newest(tmp_path).name == "000000001"


@pytest.mark.parametrize("ways", [{"nan_at": 13}, {"scale_at": (13, 1e4)}])
def test_a_loss_that_is_nan_or_explodes_stops_the_run_and_names_what_it_saw(tmp_path, ways):
    with pytest.raises(InputError, match=r"at step 13, on rows \[.*the last checkpoint is of step 13"):
        run(tmp_path, PatternTask(**ways), steps=20, checkpoint_seconds=0)
    found = json.loads((tmp_path / "stopped.json").read_text())
    assert found["step"] == 13
    assert len(found["rows"]) == SETTINGS["batch_size"]
    load_tensors(newest(tmp_path), state := {"model.bias": PatternTask().model.bias.detach().clone()})
    assert state["model.bias"].isfinite().all()
    run(tmp_path, steps=20)  # without the cause, the run resumes


def test_a_run_is_not_continued_with_other_settings(tmp_path):
    run(tmp_path, steps=2)
    with pytest.raises(InputError, match=r"has batch_size 16, and this run has 8"):
        run(tmp_path, steps=4, batch_size=8)


def test_two_trainings_do_not_share_a_folder(tmp_path):
    run(tmp_path, steps=1)
    with (tmp_path / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="in use by another run"):
            run(tmp_path, steps=2)
    run(tmp_path, steps=2)


def test_a_budget_of_minutes_ends_the_run_and_counts_what_went_before(tmp_path):
    run(tmp_path, minutes=0.02)
    steps = len(log_of(tmp_path))
    assert steps > 0
    assert log_of(tmp_path)[-1]["rate"] < 0.1 * max(line["rate"] for line in log_of(tmp_path))
    run(tmp_path, minutes=0.02)
    assert len(log_of(tmp_path)) == steps


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "none of steps, epochs and minutes"),
        ({"steps": 3, "minutes": 1}, "steps is 3 and minutes is 1; give one"),
        ({"steps": 0}, "steps is 0; it must be positive"),
        ({"steps": 3, "batch_size": 15, "accumulation": 2}, "batch_size is 15; it must be a multiple of 2"),
        ({"steps": 3, "held_out": 0.001}, "held_out is 0.001, which leaves one side"),
        ({"steps": 3, "held_out": 0.6}, r"held_out is 0.6; it must lie in \[0, 0.5\]"),
        ({"steps": 3, "precision": "float16"}, "precision is 'float16'; choose float32 or bfloat16"),
        ({"steps": 3, "distribution": "zero"}, "distribution is 'zero'; choose ddp or fsdp"),
        ({"steps": 3, "explosion": 0.5}, "explosion is 0.5"),
        ({"steps": 3, "seed": -1}, "seed is -1"),
    ],
)
def test_impossible_settings_are_refused(tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        run(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_held_out_images_are_never_trained_on(tmp_path, monkeypatch):
    task, seen, validated = PatternTask(), set(), set()
    ask = task.loss
    monkeypatch.setattr(task, "loss", lambda net, rows, step: (seen.update(rows.tolist()), ask(net, rows, step))[1])
    monkeypatch.setattr(task, "validate", lambda net, rows: (validated.update(rows.tolist()), {"loss": 1.0})[1])
    run(tmp_path, task, epochs=2)
    assert len(seen) == 180
    assert len(validated) == 20
    assert not {row % 100 for row in seen} & {row % 100 for row in validated}  # not under another crop either


def test_a_loss_about_0_may_rise_when_a_further_term_joins_in(tmp_path, monkeypatch):
    task = PatternTask()
    ask = task.loss

    def shifted(network, rows, step):
        found = ask(network, rows, step)
        value = 0.01 if step < 12 else 0.5
        return found._replace(values=found.values - found.values.detach() + value * found.counted)

    monkeypatch.setattr(task, "loss", shifted)
    run(tmp_path, task, steps=14)
    assert log_of(tmp_path)[-1]["loss"] == pytest.approx(0.5)


def test_a_thread_can_train(tmp_path):
    with ThreadPoolExecutor() as pool:
        pool.submit(run, tmp_path, steps=2).result()
    assert len(log_of(tmp_path)) == 2


def test_numbers_that_are_not_numbers_leave_the_log_readable(tmp_path, monkeypatch):
    task = PatternTask()
    monkeypatch.setattr(task, "validate", lambda network, rows: {"loss": float("nan"), "psnr": 1.0})
    run(tmp_path, task, steps=2)
    assert "NaN" not in (tmp_path / "log.jsonl").read_text()
    assert log_of(tmp_path, "validation") == [{"kind": "validation", "step": 2, "loss": None, "psnr": 1.0}]


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's compiler reads it
def test_compiled_recomputed_and_bfloat16_runs_train_too(tmp_path, monkeypatch):
    run(tmp_path / "plain", steps=3)
    compiled = []
    monkeypatch.setattr(Block, "compile", lambda self: (compiled.append(1), Module.compile(self, backend="eager")))
    # Without dropout, which is drawn for all tokens where the networks are compiled.
    run(tmp_path / "compiled", PatternTask(dropout=0.0), steps=3, compile=True)
    assert len(compiled) == CONFIG.layers
    run(tmp_path / "eager", PatternTask(dropout=0.0), steps=3)
    assert_close_weights(tmp_path / "eager", tmp_path / "compiled")
    run(tmp_path / "recomputed", steps=3, recompute_activations=True)
    assert_equal_weights(tmp_path / "plain", tmp_path / "recomputed")
    run(tmp_path / "half", steps=3, precision="bfloat16")
    plain, half = (log_of(tmp_path / name)[0]["loss"] for name in ("plain", "half"))
    assert half == pytest.approx(plain, rel=0.02)
    assert half != plain


def test_the_learning_rate_rises_and_falls_to_0():
    settings = OptimizerSettings(learning_rate=2.0, warmup=0.1)
    rates = [settings.rate(progress / 100) for progress in range(101)]
    assert rates[0] == 0
    assert rates.index(max(rates)) == 10
    assert rates[50] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0)
    constant = OptimizerSettings(learning_rate=2.0, warmup=0.1, schedule="constant")
    assert constant.rate(0.05) == 1.0
    assert constant.rate(1.0) == 2.0


def test_only_matrices_decay():
    optimizer = make_optimizer(torch.nn.Linear(3, 2), OptimizerSettings(weight_decay=0.5))
    decays = {group["params"][0].ndim: group["weight_decay"] for group in optimizer.param_groups}
    assert decays == {2: 0.5, 1: 0.0}


def test_the_average_warms_up_and_can_be_lent_to_the_model():
    task = PatternTask()
    bias = torch.nn.init.zeros_(task.model.bias)
    learner = Learner(task, OptimizerSettings(ema=0.5), TrainingSettings(), ALONE)
    for step in range(3):
        torch.nn.init.constant_(bias, step + 1.0)
        learner.update(step, share=0.5)  # without gradients, so that the weights do not change
    # decays 1/10, 2/11, 3/12: 0.9, then 2/11 * 0.9 + 9/11 * 2, then 1/4 of that + 3/4 * 3
    average = learner.state["average.bias"]
    assert average[0].item() == pytest.approx(0.25 * (2 / 11 * 0.9 + 9 / 11 * 2) + 0.75 * 3)
    with learner.averaged():
        assert bias.equal(average)
    assert bias.unique().tolist() == [3.0]


@given(
    st.integers(0, 2**62), st.integers(0, 2**40), st.lists(st.integers(0, 2**40), min_size=2, max_size=8, unique=True)
)
def test_seeds_of_examples_are_functions_of_seed_step_and_row(seed, step, rows):
    seeds = example_seeds(seed, step, torch.tensor(rows))
    assert seeds.min() >= 0
    assert len(set(seeds.tolist())) == len(rows)
    assert example_seeds(seed, step, torch.tensor(rows[1:])).equal(seeds[1:])
    assert not example_seeds(seed, step + 1, torch.tensor(rows)).equal(seeds)
