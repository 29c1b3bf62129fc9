"""Figures of a diagnosis show the values of the report."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from tokencritic.evaluation.diagnosis import Judged, held_out_report
from tokencritic.pictures.figures import (
    diagnosis_figures,
    draw_sampling,
    draw_scores,
)


@pytest.fixture(scope="module")
def held_out():
    """Forty images of ten tokens; none of them has between a half and three quarters of its tokens hidden."""
    rng = torch.Generator().manual_seed(0)
    counts = torch.tensor([2, 4, 9, 10]).repeat(10)
    mask = torch.rand(40, 10, generator=rng).argsort(1).argsort(1) < counts[:, None]
    unchanged = ~mask | (torch.rand(40, 10, generator=rng) < 0.5)
    logits = torch.randn(40, 10, generator=rng) + 2 * unchanged
    log_probs = torch.where(mask, -torch.rand(40, 10, generator=rng), torch.inf)
    return held_out_report(Judged(logits, mask, unchanged, log_probs))


def outcome(per_image, same, gain):
    return {"per_image": per_image, "same": same, "higher": 0.5, "gain": gain}


def sampler_report(taken_back, missing):
    """Two steps with outcomes and a last one. missing: the value of a step without re-masked tokens."""
    first = {"step": 2, "mean_score": 0.25, "remasked": outcome(0, missing, missing)}
    second = {"step": 3, "mean_score": 0.5, "remasked": taken_back}
    for one, gain in ((first, 0.1), (second, 0.2)):
        one |= {"resampled": outcome(5, 0.25, gain), "kept": outcome(5, 1, -gain)}
    return {"images": 8, "steps": [first, second, {"step": 4, "mean_score": 0.75}], "total": {}}


def lines(axes):
    """Return the points of each line by its label."""
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines if line.get_label()[0] != "_"}


def names(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_histograms_are_shares_of_each_kind_of_token(held_out):
    figure = draw_scores(held_out["by_ratio"])
    assert len(figure.axes) == 4
    labels = ["original", "resampled, changed", "resampled, equal to the original"]
    assert names(figure) == labels
    kinds = dict(zip(labels, ("original", "changed", "equal"), strict=True))
    drawn = {patch.get_label(): patch.get_data() for patch in figure.axes[1].patches}
    for label, kind in kinds.items():
        counts = np.array(held_out["by_ratio"][1]["histogram"][kind])
        assert drawn[label].values == pytest.approx(counts / counts.sum())
        assert drawn[label].edges == pytest.approx(np.linspace(0, 1, 21))
    assert not figure.axes[2].patches  # of no image
    assert figure.axes[1].get_title() == "25 to 50 % hidden, 10 images"


@pytest.mark.parametrize("missing", [math.nan, None])  # as measured, and as read from JSON
def test_sampling_is_drawn_step_by_step(missing):
    critic = sampler_report(outcome(3, 0.5, 0.3), missing)
    maskgit = sampler_report(outcome(0, missing, missing), missing)
    figure = draw_sampling({"critic": critic, "confidence": maskgit})
    mean, often, same, gain = (lines(axes) for axes in figure.axes)
    assert mean["Token-Critic"] == mean["MaskGIT"] == [[2, 0.25], [3, 0.5], [4, 0.75]]
    assert often == {"Token-Critic": [[2, 0], [3, 3]], "MaskGIT": [[2, 0], [3, 0]]}
    assert same["Token-Critic: re-masked"][1] == [3, 0.5]
    assert math.isnan(same["Token-Critic: re-masked"][0][1])
    assert gain["MaskGIT: hidden again"] == [[2, 0.1], [3, 0.2]]
    assert gain["Token-Critic: kept"] == [[2, -0.1], [3, -0.2]]
    assert "MaskGIT: re-masked" not in {**same, **gain}
    assert len(names(figure)) == len(set(names(figure)))


def test_all_figures_are_written(held_out, tmp_path):
    sampling = {"critic": sampler_report(outcome(3, 0.5, 0.3), math.nan)}
    written = diagnosis_figures(held_out, sampling, tmp_path, "so measured")
    assert [path.name for path in written] == ["scores.png", "sampling.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    for path in written:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert min(picture.size) > 600
