import resource
import shutil
import signal

import pytest
from training.run_task import PatternTask, assert_equal_weights, log_of, newest, run, weights

from tokencritic.errors import InputError
from tokencritic.models.generator import Generator
from tokencritic.training.run_folder import best_checkpoint, newest_checkpoint


def damages(file):
    content = file.read_bytes()
    yield "truncated", lambda: file.write_bytes(content[: len(content) // 2])
    yield "emptied", lambda: file.write_bytes(b"")
    yield "deleted", file.unlink
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 0x55]) + content[middle + 1 :]
    yield "changed", lambda: file.write_bytes(flipped)


def test_whatever_happens_to_a_file_of_the_newest_checkpoint_the_run_goes_on_from_a_good_one(tmp_path, capsys):
    good = tmp_path / "good"
    run(good, steps=4, checkpoint_seconds=0)
    names = sorted(file.name for file in newest(good).iterdir())
    assert names == ["checkpoint.json", "state.safetensors"]
    for name in names:
        for number in range(4):
            place = tmp_path / f"{name}-{number}"
            shutil.copytree(good, place)
            what, damage = list(damages(newest(place) / name))[number]
            damage()
            capsys.readouterr()
            run(place, steps=4)
            said = capsys.readouterr().out
            assert "000000004 is damaged" in said, (name, what)
            assert "resuming at step 3" in said, (name, what)
            assert_equal_weights(good, place)


def test_a_note_is_told_from_what_was_written_whichever_byte_of_it_changed(tmp_path):
    run(tmp_path, steps=4, checkpoint_seconds=0)
    file = newest(tmp_path) / "checkpoint.json"
    content, written, told = file.read_bytes(), newest_checkpoint(tmp_path), 0
    for place in range(0, len(content), 3):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        if (found := newest_checkpoint(tmp_path)) != written:  # the last digit of a float may not change its value
            assert found["step"] == 3, content[place - 9 : place + 9]
            file.parent.with_name("000000004.damaged").rename(file.parent)
            told += 1
    assert told > 0.3 * len(content)


def test_if_all_checkpoints_are_damaged_the_run_starts_anew(tmp_path, capsys):
    run(tmp_path, steps=4, checkpoint_seconds=0)
    before = weights(tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        (path / "checkpoint.json").write_text("{")
    run(tmp_path, steps=4)
    assert capsys.readouterr().out.count("is damaged") == 2
    assert all(value.equal(before[name]) for name, value in weights(tmp_path).items())


def test_the_newest_the_best_and_every_nth_checkpoint_are_kept(tmp_path, monkeypatch):
    task = PatternTask()
    losses = iter([float("nan"), 1.0, *[3.0] * 20])
    monkeypatch.setattr(task, "validate", lambda network, rows: {"loss": next(losses)})
    run(tmp_path, task, steps=12, checkpoint_seconds=0, validate_seconds=0, keep_every=5)
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [2, 5, 10, 11, 12]
    assert best_checkpoint(tmp_path).name == "000000002"


@pytest.mark.parametrize(
    ("largest", "message"),
    [
        (
            "checkpoints/000000003/state.safetensors",
            r"could not be written: .*File too large.*still has earlier checkpoints",
        ),
        ("generator/model.safetensors", r"model.safetensors could not be written: .*File too large"),
    ],
)
def test_a_disk_without_room_leaves_the_last_checkpoint_and_is_reported(tmp_path, largest, message):
    run(tmp_path, steps=3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write then fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / largest).stat().st_size // 2, limits[1]))
    try:
        with pytest.raises(InputError, match=message):
            run(tmp_path, steps=6, checkpoint_seconds=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000003"]
    assert not list(tmp_path.rglob("*.tmp"))
    Generator.from_pretrained(tmp_path / "generator")
    run(tmp_path, steps=6)
    assert log_of(tmp_path)[-1]["step"] == 5


def test_what_a_killed_process_left_unfinished_is_removed(tmp_path):
    run(tmp_path, steps=2)
    (tmp_path / "checkpoints/000000009.partial").mkdir()
    leftovers = [tmp_path / ".log.jsonl.123.tmp", tmp_path / "generator/.model.safetensors.123.tmp"]
    for leftover in leftovers:
        leftover.write_bytes(b"half")
    run(tmp_path, steps=2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000002"]
    assert not any(leftover.exists() for leftover in leftovers)
