"""Trade-off curves: the Pareto front is correct, and the figure shows the values of the rows."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pictures.toy import toy_trace
from PIL import Image

from tokencritic.pictures.figures import draw_tradeoff, pareto_front, tradeoff_figures
from tokencritic.pictures.steps import run_of
from tokencritic.sampling.samplers import SAMPLERS


def row(fid, score, sampler="critic", nfe=36, **more):
    return {"sampler": sampler, "nfe": nfe, "fid": fid, "is": score, **more}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_front_is_what_no_other_row_beats(points):
    rows = [row(fid, score) for fid, score in points]
    front = {(one["fid"], one["is"]) for one in pareto_front(rows, "is")}

    def beaten(fid, score):
        return any(f <= fid and s >= score and (f, s) != (fid, score) for f, s in points)

    assert front == {point for point in points if not beaten(*point)}


def test_every_row_is_drawn_in_its_place_and_the_legend_names_samplers_and_nfe():
    rows = [row(4.0, 9.0), row(3.0, 8.0, fid_std=0.5, is_std=math.nan), row(5.0, 9.5, "confidence", 18)]
    figure = draw_tradeoff(rows, ["is"])
    axes = figure.axes[0]
    points = {tuple(np.ravel(line.get_xydata())) for line in axes.lines if line.get_marker() not in ("None", "", None)}
    assert points == {(9.0, 4.0), (8.0, 3.0), (9.5, 5.0)}
    fronts = [line.get_xydata().tolist() for line in axes.lines if len(line.get_xydata()) > 1]
    assert fronts == [[[8.0, 3.0], [9.0, 4.0]]]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:4] == ["Token-Critic", "NFE 36", "MaskGIT", "NFE 18"]


def test_the_figures_that_the_measures_allow_are_written(tmp_path):
    rows = [row(4.0, 9.0, recall=0.5, precision=0.7), row(3.0, 8.0, "random-order", 18, recall=0.6, precision=0.6)]
    written = tradeoff_figures(rows, tmp_path, "measured so")
    assert [path.name for path in written] == ["fid_is.png", "fid_recall_precision.png"]
    with Image.open(written[0]) as small, Image.open(written[1]) as large:
        assert large.width > small.width > 1000
    without = [{name: one[name] for name in ("sampler", "nfe", "fid", "recall", "precision")} for one in rows]
    assert [path.name for path in tradeoff_figures(without, tmp_path, "")] == ["fid_recall_precision.png"]


def test_no_sampler_is_left_out_and_no_two_look_alike():
    samplers = list(SAMPLERS)
    figure = draw_tradeoff([row(1 + place, place, sampler) for place, sampler in enumerate(samplers)], ["is"])
    lines = [line for line in figure.axes[0].lines if line.get_linestyle() != "None"]
    assert len({line.get_color() for line in lines}) == len(samplers)
    assert all(run_of(sampler, toy_trace()).name for sampler in samplers)
