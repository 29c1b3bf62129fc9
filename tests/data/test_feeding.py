"""Reading ahead in worker processes: the same bytes for any number of workers, and no worker is ever left behind."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from data.reading import CPU, answer, classify, tokenize, write_images

from tokencritic.data import feeding
from tokencritic.data.feeding import read_ahead
from tokencritic.data.sources import open_source
from tokencritic.data.tokens import TokenArrays
from tokencritic.data.transforms import ImageBatches, Preprocess
from tokencritic.errors import InputError

SCRIPT = Path(__file__).with_name("reading.py")


@pytest.fixture
def _few_are_enough(monkeypatch):
    monkeypatch.setattr(feeding, "FEW", 0)


def files_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.usefixtures("_few_are_enough")
def test_tokens_do_not_depend_on_workers_nor_on_interruptions(tmp_path):
    write_images(tmp_path / "images", corrupt={0, 4, 6, 31})
    for workers in (0, 1, 2):
        arrays = tokenize(tmp_path / "images", tmp_path / str(workers), workers)
        assert (len(arrays), len(arrays.facts["corrupt"])) == (72, 4)
    assert files_of(tmp_path / "0") == files_of(tmp_path / "1") == files_of(tmp_path / "2")


@pytest.mark.usefixtures("_few_are_enough")
def test_corrupt_files_that_workers_find_are_counted_together(tmp_path):
    write_images(tmp_path / "images", corrupt={0, 39})  # the first and the last batch
    with pytest.raises(InputError) as caught:
        tokenize(tmp_path / "images", tmp_path / "out", 2, max_corrupt=1, crops_per_image=1)
    message = str(caught.value)
    assert "images has 2 corrupt files, more than max_corrupt 1: class0/000.png (" in message
    assert "class1/039.png (" in message
    assert message.isprintable()


@pytest.mark.usefixtures("_few_are_enough")
def test_training_does_not_depend_on_workers(tmp_path):
    write_images(tmp_path / "images", corrupt={4})
    for workers in (0, 1, 2):
        classify(tmp_path / "images", tmp_path / str(workers), workers, steps=3)
    runs = [files_of(tmp_path / str(workers)) for workers in (0, 1, 2)]
    names = [name for name in runs[0] if name.endswith(".safetensors")]
    assert len(names) == 2  # the model, and a checkpoint
    for name in names:
        assert runs[0][name] == runs[1][name] == runs[2][name]


def test_what_is_read_ahead_is_what_is_asked_for(tmp_path):
    write_images(tmp_path)
    images = ImageBatches(open_source(tmp_path), Preprocess(8, 3, "random", True), seed=3)
    parts = [(torch.tensor([5, 0, 7]), 4), (torch.tensor([1, 2]), 5)]
    expected = [images.labelled(*part) for part in parts]
    with images.reading_ahead(iter(parts), 5):
        for part, pair in zip(parts, expected, strict=True):
            assert images(torch.tensor([9]), None).equal(images(torch.tensor([9]), None))  # validation comes between
            assert all(one.equal(same) for one, same in zip(images.labelled(*part), pair, strict=True))
    with images.reading_ahead(iter(parts), 5), pytest.raises(ValueError, match="step 5 is asked for; expected step 4"):
        images.labelled(*parts[1])


@pytest.mark.usefixtures("_few_are_enough")
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (3, "three is refused"),
        (5, r"a process that reads images has ended: DataLoader worker .*; give fewer workers, or 0"),
    ],
)
def test_an_error_in_a_worker_is_one_line(number, message):
    state, found = torch.get_rng_state(), []

    def read():
        with read_ahead(answer, ((one,) for one in (1, 2, number)), 3, 1, CPU) as results:
            found.extend(int(result[0]) for result in results)

    with pytest.raises(InputError, match=f"^{message}$") as caught:
        read()
    assert found == [1, 2][: len(found)]  # a killed worker may take results along
    assert str(caught.value).isprintable()
    assert torch.get_rng_state().equal(state)


def test_few_images_are_read_in_the_process():
    with read_ahead(os.getpid, [()], feeding.FEW - 1, 2, CPU) as results:
        assert list(results) == [os.getpid()]


@pytest.mark.usefixtures("_few_are_enough")
def test_images_for_a_gpu_are_pinned(monkeypatch):
    made = {}

    class Loader(feeding.DataLoader):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            made[self.pin_memory] = self.multiprocessing_context.get_start_method()
            raise InterruptedError

    monkeypatch.setattr(feeding, "DataLoader", Loader)
    for device in ("cpu", "cuda"):
        with pytest.raises(InterruptedError), read_ahead(answer, [(1,)], 1, 1, torch.device(device)):
            pass
    assert made == {False: "spawn", True: "spawn"}


def started(*arguments):
    """A process of its own group, and the process ids of its workers."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (SCRIPT.parents[1], SCRIPT.parents[2] / "src")))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        [sys.executable, SCRIPT, *map(str, arguments)], env=environment, start_new_session=True, **streams
    )
    first = process.stdout.readline()
    assert first, process.communicate()[1]
    return process, json.loads(first)


def test_a_killed_process_leaves_no_worker(tmp_path):
    process, workers = started("wait", tmp_path)
    ends = [os.pidfd_open(worker) for worker in workers]
    assert len(ends) == 2
    with process:
        process.kill()
    for end in ends:
        assert select.select([end], [], [], 60)[0], "a worker is still there"
        os.close(end)


@pytest.mark.parametrize(
    ("what", "number", "said"), [("train", signal.SIGTERM, "stopped"), ("tokenize", signal.SIGINT, "KeyboardInterrupt")]
)
def test_a_signal_to_the_whole_group_is_for_the_parent(tmp_path, what, number, said):
    """A run saves and stops, tokenizing is interrupted; workers say nothing and end."""
    write_images(tmp_path / "images")
    process, workers = started(what, tmp_path, int(number))
    output, errors = process.communicate(timeout=120)
    assert process.returncode == (0 if what == "train" else -number), errors  # Python ends by SIGINT if not caught
    assert said in output + errors
    assert errors.count("Traceback") == (what == "tokenize")
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)
    if what == "tokenize":
        with pytest.raises(InputError, match=r"has no tokens\.json"):
            TokenArrays.open(tmp_path / "out")
        tokenize(tmp_path / "images", tmp_path / "out", 0)
        tokenize(tmp_path / "images", tmp_path / "whole", 0)
        assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
