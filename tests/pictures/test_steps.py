import numpy as np
import pytest
from pictures.toy import ToyTokenizer, count, places, toy_pixels, toy_trace

from tokencritic.errors import InputError
from tokencritic.pictures.look import HIDDEN, REMASKED, colour_scale
from tokencritic.pictures.panels import hidden_panels, magnify, score_panels
from tokencritic.pictures.steps import TracedRun, before_and_after, film_strip, run_of, step_frames

GRID = 3, 4


def panels(step, image, times, scale="probability"):
    """The three panels of one image at one step, `times` as large, made one by one."""
    size = 12 * times, 16 * times
    pixels = toy_pixels(step.proposal[image].numpy())[None]
    made = [magnify(pixels, size)[0]]
    if step.scores is not None:
        made.append(magnify(score_panels(pixels, step.scores[image].numpy()[None], GRID, scale), size)[0])
    hidden, remasked = step.hidden[image].numpy(), step.remasked[image].numpy()
    return [*made, hidden_panels(magnify(pixels, size)[0], hidden, remasked, GRID)]


@pytest.mark.parametrize(("num_images", "times"), [(1, 15), (3, 15), (4, 11), (8, 5), (10, 8), (16, 5)])
def test_there_is_a_frame_for_each_step_with_three_panels_of_each_image(num_images, times):
    trace = toy_trace(num_images)
    frames = step_frames(run_of("critic", trace), ToyTokenizer(), [f"image {i}" for i in range(num_images)])
    assert len(frames) == len(trace.steps) == 4
    assert len({frame.size for frame in frames}) == 1
    assert 780 <= frames[0].width <= 900
    for frame, step in zip(frames, trace.steps, strict=True):
        for image in range(num_images):
            assert all(places(frame, panel) for panel in panels(step, image, times)), (step.index, image)


def test_scores_in_another_unit_than_probabilities_are_shown_by_their_rank():
    trace = toy_trace(1)
    for step in trace.steps[:-1]:
        step.scores.mul_(9).add_(5)  # all of them beyond 1
    wanted = panels(trace.steps[1], 0, 15, "rank")
    by_rank, clipped = (step_frames(run_of("critic", trace, known), ToyTokenizer())[1] for known in (False, True))
    assert all(places(by_rank, panel) for panel in wanted)
    assert not places(clipped, wanted[1])


def test_images_stand_side_by_side_and_their_panels_below_each_other():
    trace = toy_trace(3)
    frame = step_frames(run_of("critic", trace), ToyTokenizer())[1]
    corners = [[places(frame, panel)[0] for panel in panels(trace.steps[1], image, 15)] for image in range(3)]
    assert [[x for x, _ in image] for image in corners] == [[132] * 3, [378] * 3, [624] * 3]
    assert len({tuple(y for _, y in image) for image in corners}) == 1
    ys = [y for _, y in corners[0]]
    assert ys == sorted(ys)


def test_one_image_has_its_panels_side_by_side():
    trace = toy_trace(1)
    frame = step_frames(run_of("critic", trace), ToyTokenizer())[1]
    corners = [places(frame, panel)[0] for panel in panels(trace.steps[1], 0, 15)]
    assert len({y for _, y in corners}) == 1
    assert [x for x, _ in corners] == [132, 378, 624]


def test_hidden_is_grey_and_remasked_outlined_in_exactly_as_many_tokens():
    trace = toy_trace(4)
    frames = step_frames(run_of("critic", trace), ToyTokenizer())
    cell, ring = 44 * 44, 44 * 44 - 30 * 30  # 44 pixels a token, an outline of 7
    legend = [count(frames[-1], colour) for colour in (HIDDEN, REMASKED)]
    assert legend[0] > 0
    assert legend[1] > 0
    assert sum(int(step.remasked.sum()) for step in trace.steps) > 3
    for frame, step in zip(frames, trace.steps, strict=True):
        hidden, remasked = int(step.hidden.sum()), int(step.remasked.sum())
        assert count(frame, REMASKED) == legend[1] + remasked * ring
        assert count(frame, HIDDEN) == legend[0] + hidden * cell - remasked * ring


def test_the_legend_shows_the_whole_scale_from_distrusted_to_trusted():
    frame = np.asarray(step_frames(run_of("critic", toy_trace()), ToyTokenizer())[-1])
    (bar,) = [row for row in frame[-60:] if (row == colour_scale()[0]).all(-1).any()][7:8]
    start = int(np.argmax((bar == colour_scale()[0]).all(-1)))
    ranks = [int(np.argmin(np.abs(colour_scale().astype(int) - pixel).sum(-1))) for pixel in bar[start : start + 140]]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0
    assert ranks[-1] >= 254


def test_two_runs_go_on_together_and_one_that_skips_a_step_waits():
    critic, maskgit = toy_trace(3, (2, 3, 4, 6), seed=1), toy_trace(3, (2, 4, 6), seed=2)
    frames = step_frames([run_of("confidence", maskgit), run_of("critic", critic)], ToyTokenizer())
    assert len(frames) == 4
    for frame, step, other in zip(frames, critic.steps, [maskgit.steps[i] for i in (0, 0, 1, 2)], strict=True):
        upper = [places(frame, panel)[0] for panel in panels(other, 2, 15, "rank")]
        lower = [places(frame, panel)[0] for panel in panels(step, 2, 15)]
        assert max(y for _, y in upper) < min(y for _, y in lower)


def test_runs_of_different_lengths_begin_and_end_together():
    short, long = toy_trace(3, (1, 2), seed=1), toy_trace(3, (1, 2, 3, 4), seed=2)
    frames = step_frames([TracedRun("short", short.steps), TracedRun("long", long.steps)], ToyTokenizer())
    assert len(frames) == 4
    assert all(places(frames[-1], panels(trace.steps[-1], 1, 15)[0]) for trace in (short, long))
    assert all(places(frames[2], panels(trace.steps[place], 1, 15)[0]) for trace, place in ((short, 0), (long, 2)))


def test_a_film_strip_shows_the_steps_from_left_to_right():
    trace = toy_trace(4, range(2, 7))
    strip = film_strip(run_of("critic", trace), ToyTokenizer())
    corners = [[places(strip, panel)[0] for panel in panels(step, 0, 8)] for step in trace.steps]
    assert [corner[0][0] for corner in corners] == [132 + i * (128 + 6) for i in range(5)]
    for corner in corners[:-1]:  # the last step's first and last panel are equal
        assert len({x for x, _ in corner}) == 1
        assert [y for _, y in corner] == [72, 72 + 96 + 6, 72 + 2 * (96 + 6)]


def test_a_film_strip_of_many_steps_keeps_the_first_and_the_last():
    trace = toy_trace(1, range(1, 19))
    strip = film_strip(run_of("critic", trace), ToyTokenizer(), ["Sandal"])
    shown = [bool(places(strip, panels(step, 0, 5)[0])) for step in trace.steps]
    assert sum(shown) == 8
    assert shown[0]
    assert shown[-1]
    assert strip.width <= 900


def test_a_film_strip_of_two_runs_has_them_below_each_other_for_each_image():
    runs = [run_of("confidence", toy_trace(2, seed=1)), run_of("critic", toy_trace(2, seed=2))]
    strip = film_strip(runs, ToyTokenizer(), ["Bag", "Coat"])
    ys = [places(strip, panels(run.steps[0], image, 11, run.scale)[1])[0][1] for image in (0, 1) for run in runs]
    assert ys == sorted(ys)


def test_refinement_shows_the_image_its_scores_what_is_hidden_and_what_came_of_it():
    trace = toy_trace(5, range(4))
    picture = before_and_after(trace, ToyTokenizer(), list("abcde"))
    first, last = trace.steps[0], trace.steps[-1]
    for image in range(5):
        expected = [*panels(first, image, 8), panels(last, image, 8)[0]]
        corners = [places(picture, panel)[0] for panel in expected]
        assert len({x for x, _ in corners}) == 1
        assert [y for _, y in corners] == sorted(y for _, y in corners)
    by_rank = before_and_after(trace, ToyTokenizer(), probabilities=False)
    assert places(by_rank, panels(first, 0, 8, "rank")[1])


def test_names_are_written_and_long_ones_cut_off():
    trace = toy_trace(4)
    plain, named, long = (
        step_frames(run_of("critic", trace), ToyTokenizer(), names)[0]
        for names in ((), ["Bag", "Coat", "", "Dress"], ["a very long name of a class, " * 5] * 4)
    )
    assert plain.width == named.width == long.width
    assert plain.height < named.height == long.height
    for column, expected in enumerate((True, True, False, True)):
        left = 132 + column * 182
        heading = np.asarray(named)[60:80, left : left + 176]
        assert (heading.min() < 128) == expected
    gaps = np.asarray(long)[60:80, [132 + 182 * i - 3 for i in range(5)]]
    assert (gaps == 255).all()


def test_the_same_steps_give_the_same_pixels():
    first, second = (step_frames(run_of("critic", toy_trace()), ToyTokenizer()) for _ in range(2))
    assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TracedRun("mine", []), "the run 'mine' has no steps"),
        (lambda: step_frames([], ToyTokenizer()), "expected one or more runs"),
        (lambda: step_frames(run_of("critic", toy_trace()), ToyTokenizer(), ["a"]), "names has 1 entries for 2 images"),
        (
            lambda: step_frames([run_of("critic", toy_trace(n)) for n in (2, 3)], ToyTokenizer()),
            r"the runs have \[2, 3\] images",
        ),
        (lambda: before_and_after(toy_trace(), ToyTokenizer()), "not of a refinement"),
        (lambda: before_and_after(toy_trace(2, range(4)), ToyTokenizer(), ["a"]), "names has 1 entries for 2 images"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
