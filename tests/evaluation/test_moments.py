"""Streamed moments against NumPy, and reference files of every kind, whole and broken."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencritic.errors import InputError
from tokencritic.evaluation.metrics import fit_gaussian
from tokencritic.evaluation.reference import read_statistics
from tokencritic.interop.adm import SampleFile


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_any_batches_give_numpys_mean_and_covariance(sizes, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(max(2, sum(sizes)), 5)) * [1, 10, 1, 0.01, 1] + 1000
    batches = np.split(rows, np.cumsum(sizes))
    found = fit_gaussian(map(torch.from_numpy, batches))
    assert found.count == len(rows)
    np.testing.assert_allclose(found.mean.numpy(), rows.mean(0), rtol=1e-14)
    np.testing.assert_allclose(found.covariance.numpy(), np.cov(rows.T), rtol=1e-9, atol=1e-10)


def test_a_small_deviation_far_from_zero_survives():
    """Sums of squares would lose precision: float64 cannot represent 1e16 + 1e-2."""
    rows = torch.tensor([[1e8 - 0.1], [1e8], [1e8 + 0.1]], dtype=torch.float64)
    assert float(fit_gaussian(rows.split(1)).covariance) == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize("bad", [torch.ones(4), torch.tensor([[1.0, float("nan")]])])
def test_features_that_are_none_are_refused(bad):
    with pytest.raises(InputError, match="features"):
        fit_gaussian([bad])


def test_one_sample_has_no_covariance():
    with pytest.raises(InputError, match="at least 2"):
        fit_gaussian([torch.ones(1, 1)])


def test_files_of_other_projects_are_read(tmp_path: Path):
    """ADM's reference batches hold images and both kinds of statistics; pytorch-fid's hold mu and sigma."""
    rng = np.random.default_rng(0)
    arrays = {"mu": rng.normal(size=4), "sigma": np.eye(4), "mu_s": rng.normal(size=3), "sigma_s": np.eye(3)}
    images = rng.integers(0, 256, (7, 5, 4, 3), np.uint8)
    np.savez(tmp_path / "adm.npz", arr_0=images, **arrays)
    read = read_statistics(tmp_path / "adm.npz")
    np.testing.assert_array_equal(read.mean, arrays["mu"])
    np.testing.assert_array_equal(read.covariance, arrays["sigma"])
    assert read.count is None
    np.savez_compressed(tmp_path / "plain.npz", mu=arrays["mu"].astype(np.float32), sigma=arrays["sigma"])
    assert read_statistics(tmp_path / "plain.npz").mean.dtype is torch.float64

    np.testing.assert_array_equal(SampleFile(tmp_path / "adm.npz").batch(0, 7), images)


BROKEN = {
    "expected mu and sigma": {"arr_0": np.zeros((2, 4, 4, 3), np.uint8)},
    "expected floats": {"mu": np.zeros(3), "sigma": np.eye(4)},
    "NaN": {"mu": np.full(2, np.nan), "sigma": np.eye(2)},
    "without pickles": {"mu": np.array([{}], object), "sigma": np.eye(2)},
}


@pytest.mark.parametrize("said", BROKEN)
def test_broken_files_are_refused_by_name(tmp_path: Path, said):
    np.savez(tmp_path / "broken.npz", **BROKEN[said])
    with pytest.raises(InputError, match=rf"broken\.npz.*{said}"):
        read_statistics(tmp_path / "broken.npz")


def test_files_that_are_no_archives_or_cut_off_are_refused(tmp_path: Path):
    (tmp_path / "text.npz").write_text("mu")
    np.savez(tmp_path / "whole.npz", mu=np.zeros(4), sigma=np.eye(4))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:400])
    for name in ("text.npz", "cut.npz", "missing.npz"):
        with pytest.raises(InputError, match=name):
            read_statistics(tmp_path / name)
        with pytest.raises(InputError, match=name):
            SampleFile(tmp_path / name)


def test_images_of_another_kind_are_refused(tmp_path: Path):
    np.savez(tmp_path / "floats.npz", arr_0=np.zeros((2, 4, 4, 3)))
    np.savez(tmp_path / "objects.npz", arr_0=np.array([{}], object))
    np.savez(tmp_path / "none.npz", images=np.zeros((2, 4, 4, 3), np.uint8))
    for name, said in (("floats", "expected uint8"), ("objects", "expected uint8"), ("none", "no arr_0")):
        with pytest.raises(InputError, match=said):
            SampleFile(tmp_path / f"{name}.npz")


def test_images_cut_off_in_the_middle_are_an_error_not_fewer_images(tmp_path: Path):
    content = (
        np.lib.format.magic(1, 0) + b"v\x00" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 4, 4, 3), }"
    )
    with zipfile.ZipFile(tmp_path / "short.npz", "w") as archive:
        archive.writestr("arr_0.npy", content.ljust(127) + b"\n" + bytes(60))
    with pytest.raises(InputError, match="short"):
        SampleFile(tmp_path / "short.npz").batch(0, 2)
