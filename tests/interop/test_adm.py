"""Sample files as plain numpy and ADM's evaluator read them."""

import zipfile

import numpy as np
import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.interop.adm import SampleFile, write_samples

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (7, 4, 6, 3), np.uint8)
LABELS = [3, 1, 4, 1, 5, 9, 2]


def test_plain_numpy_reads_what_was_written_in_batches(tmp_path):
    file = tmp_path / "samples.npz"
    write_samples(file, iter([IMAGES[:3], torch.from_numpy(IMAGES[3:4]), IMAGES[4:]]), LABELS)
    with np.load(file, allow_pickle=False) as arrays:
        assert arrays.files == ["arr_0", "arr_1"]
        assert arrays["arr_0"].dtype == np.uint8
        assert np.array_equal(arrays["arr_0"], IMAGES)
        assert arrays["arr_1"].dtype == np.int64
        assert arrays["arr_1"].tolist() == LABELS
    np.savez(tmp_path / "plain.npz", IMAGES, np.array(LABELS))
    with zipfile.ZipFile(file) as ours, zipfile.ZipFile(tmp_path / "plain.npz") as theirs:
        for name in ("arr_0.npy", "arr_1.npy"):
            assert ours.read(name) == theirs.read(name)  # byte for byte what numpy would have put there
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_floats_and_grey_images_become_three_channels_of_bytes(tmp_path):
    grey = torch.tensor([0.0, 0.2, 100.4 / 255, 1.0]).view(1, 1, 2, 2)
    write_samples(tmp_path / "grey.npz", [grey], torch.tensor([7]))
    with np.load(tmp_path / "grey.npz") as arrays:
        assert arrays["arr_0"][0].tolist() == [[[0] * 3, [51] * 3], [[100] * 3, [255] * 3]]


def test_images_without_classes_have_no_labels(tmp_path):
    write_samples(tmp_path / "plain.npz", [IMAGES[:3], IMAGES[3:]], None, 7)
    with np.load(tmp_path / "plain.npz") as arrays:
        assert arrays.files == ["arr_0"]
        assert np.array_equal(arrays["arr_0"], IMAGES)
    file = SampleFile(tmp_path / "plain.npz")
    assert (len(file), file.labels) == (7, None)
    with pytest.raises(InputError, match="there are 7 images; expected 8"):
        write_samples(tmp_path / "more.npz", [IMAGES], None, 8)
    with pytest.raises(InputError, match="labels and count are both None"):
        write_samples(tmp_path / "more.npz", [IMAGES], None)
    assert not (tmp_path / "more.npz").exists()


def test_the_same_samples_make_the_same_bytes(tmp_path):
    for name, batches in (("one", [IMAGES]), ("two", [IMAGES[:2], IMAGES[2:]])):
        write_samples(tmp_path / name, batches, LABELS)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_files_may_pass_the_old_limit_of_zip(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 300)  # 4 GiB in truth
    write_samples(tmp_path / "samples.npz", [IMAGES[:3], IMAGES[3:]], np.array(LABELS, np.int16))
    with np.load(tmp_path / "samples.npz") as arrays:
        assert np.array_equal(arrays["arr_0"], IMAGES)
        assert arrays["arr_1"].dtype == np.int64


def test_only_one_batch_is_asked_for_at_a_time(tmp_path):
    asked = []

    def batches():
        for number in range(7):
            asked.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            yield IMAGES[number : number + 1].repeat(100, axis=1).repeat(100, axis=2)

    write_samples(tmp_path / "samples.npz", batches(), LABELS)
    assert asked[-1] - asked[1] >= 4 * 400 * 600 * 3  # what came before is on the disk already


def test_a_sample_file_is_opened_without_reading_its_images(tmp_path):
    file = tmp_path / "samples.npz"
    write_samples(file, [IMAGES], LABELS)
    samples = SampleFile(file)
    assert len(samples) == 7
    assert samples.shape == (7, 4, 6, 3)
    assert samples.labels.tolist() == LABELS
    assert np.array_equal(np.concatenate([samples.batch(0, 4), samples.batch(4, 7)]), IMAGES)
    np.savez_compressed(tmp_path / "reference.npz", arr_0=IMAGES, mu=np.zeros(3), sigma=np.eye(3))
    reference = SampleFile(tmp_path / "reference.npz")
    assert reference.labels is None
    assert np.array_equal(reference.batch(0, 7), IMAGES)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES}, "has no arr_0"),
        ({"arr_0": IMAGES.astype(np.float32)}, "holds images float32"),
        ({"arr_0": IMAGES[0]}, r"holds images uint8 \(4, 6, 3\)"),
        ({"arr_0": IMAGES[:0]}, r"holds images uint8 \(0, 4, 6, 3\); .* none of them 0"),
        ({"arr_0": np.array([{}] * 7, object)}, "holds images object"),
        ({"arr_0": IMAGES, "arr_1": np.array(LABELS[:5])}, r"holds labels int64 \(5,\); expected integers \(7,\)"),
        ({"arr_0": IMAGES, "arr_1": np.array(LABELS, float)}, "holds labels float64"),
        ({"arr_0": IMAGES, "arr_1": np.array(LABELS, object)}, "without pickles"),
    ],
)
def test_a_file_of_something_else_is_refused_by_name_in_one_line(tmp_path, arrays, message):
    file = tmp_path / "bad.npz"
    np.savez(file, **arrays)
    with pytest.raises(InputError, match=rf"bad\.npz.*{message}") as error:
        SampleFile(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_images_asked_for_in_order_are_read_once(tmp_path, monkeypatch, save):
    images = np.random.default_rng(0).integers(0, 256, (100, 16, 16, 3), np.uint8)
    save(tmp_path / "samples.npz", arr_0=images)
    read, done = zipfile.ZipExtFile.read, []

    def counted(self, count=-1):
        content = read(self, count)
        done.append(len(content))
        return content

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)
    reader = SampleFile(tmp_path / "samples.npz")
    for start in range(0, 100, 20):  # as the second of two ranks does
        assert np.array_equal(reader.batch(start + 10, start + 20), images[start + 10 : start + 20])
    assert sum(done) < images.nbytes + 1000
    assert np.array_equal(reader.batch(3, 7), images[3:7])


def test_broken_files_are_refused(tmp_path):
    file = tmp_path / "samples.npz"
    write_samples(file, [IMAGES], LABELS)
    content = file.read_bytes()
    for name, what in (("cut", content[:-40]), ("text", b"samples"), ("empty", b"")):
        (tmp_path / name).write_bytes(what)
        with pytest.raises(InputError, match=f"{name} is not a whole"):
            SampleFile(tmp_path / name)
    with pytest.raises(InputError, match=r"nowhere cannot be read: No such file"):
        SampleFile(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("batches", "labels", "message"),
    [
        ([IMAGES[:3]], LABELS, "there are 3 images; expected 7"),
        ([IMAGES, IMAGES], LABELS, "there are more than 7 images; expected 7"),
        ([], LABELS, "there are 0 images; expected 7"),
        ([IMAGES[:3], IMAGES[3:, :3]], LABELS, "expected one size"),
        ([torch.full((7, 3, 4, 6), torch.nan)], LABELS, "images hold values from nan"),
        ([IMAGES], [0.5] * 7, "labels is float64"),
        ([IMAGES], [], "labels is"),
    ],
)
def test_samples_that_do_not_fit_leave_nothing_behind(tmp_path, batches, labels, message):
    with pytest.raises(InputError, match=message):
        write_samples(tmp_path / "samples.npz", batches, labels)
    assert list(tmp_path.iterdir()) == []
