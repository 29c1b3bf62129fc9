"""Published schedules against what the original code does: fixtures computed by it, see tests/interop/fixtures."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokencritic import ConfidenceScorer, HaltonScorer, InputError, Proposal, SamplingSettings, as_generator, sample
from tokencritic.guidance import guided
from tokencritic.masking import take
from tokencritic.plan import Plan, Step
from tokencritic.sampling.halton_order import halton_ranks
from tokencritic.sampling.loop import Start, run_loop
from tokencritic.schedules import PAPER, SCHEDULES, Guidance

FIXTURES = Path(__file__).parents[1] / "interop/fixtures"
MASKGIT = json.loads((FIXTURES / "maskgit-official/decode.json").read_text())
HALTON, TITOK, MASKBIT = (
    json.loads((FIXTURES / name / "samplers.json").read_text()) for name in ("halton-maskgit", "titok", "maskbit")
)
TEMPERATURES = (1.3, 0.5)  # TiTok's and MaskBit's annealing: 0.5 + 0.8 (1 - r)


def steps_of(steps, schedule, num_tokens=64):
    return Plan.make([num_tokens], steps, schedule=SCHEDULES[schedule]).steps


def test_hidden_counts_are_the_originals_on_their_whole_grid():
    for row in MASKGIT["masked_counts"] + MASKGIT["masked_counts_with_known_tokens"]:
        table = SCHEDULES["maskgit"].table(row["unknown_at_start"], row["steps"])
        expected = [*row["masked_after_step"][:-1], 0]  # the original hides one more token and returns the proposal
        if row["start_iter"] == 0:
            assert table[1:] == expected, row
    for row in TITOK["mask_counts"]:
        assert SCHEDULES["titok"].table(row["tokens"], row["steps"])[1:] == row["masked_after_step"], row
    for row in MASKBIT["mask_counts"]:
        if not row["restarts"]:  # where the original masks everything again
            parts = row["tokens"] * row["splits"]
            assert SCHEDULES["maskbit"].table(parts, row["steps"])[1:] == row["masked_after_step"], row
    for row in HALTON["halton_revealed"]:
        table = SCHEDULES["halton"].table(row["n"], row["steps"])
        assert [row["n"] - hidden for hidden in table[1:]] == row["revealed_after_step"], row
    tried = [row for row in HALTON["confidence_masked"] if row["mode"] == "arccos" and "error" not in row]
    assert len(tried) > 30
    for row in tried:
        assert SCHEDULES["halton-confidence"].table(row["n"], row["steps"])[1:] == row["masked_after_step"], row


@given(st.sampled_from(list(SCHEDULES)), st.integers(0, 300), st.integers(1, 80), st.floats(0.01, 1, allow_nan=False))
def test_every_table_falls_to_nothing(schedule, num_tokens, steps, first_ratio):
    table = SCHEDULES[schedule].table(num_tokens, steps, first_ratio)
    assert len(table) == steps + 1
    assert table == sorted(table, reverse=True)
    assert table[-1] == 0
    assert table[0] == PAPER.table(num_tokens, steps, first_ratio)[0]


def published(name, row):
    """The settings of a published run of TiTok or MaskBit, and whether its guidance weight is ours less 1."""
    maskbit = "bits" in row
    kind = row["guidance_annealing" if maskbit else "guidance_decay"]
    extra = 0 if kind == "power-cosine" else 1
    names = {"none": "constant", "power-cosine": "cosine"}
    annealed = row["use_sampling_annealing" if maskbit else "softmax_temperature_annealing"]
    settings = SamplingSettings(
        "confidence",
        row["steps"],
        schedule="maskbit" if maskbit else "titok",
        temperature=TEMPERATURES if annealed else row.get("softmax_temperature", 1.0),
        selection_noise=row["randomize_temperature"],
        guidance=row["guidance_scale"] + extra,
        guidance_schedule=names.get(kind, kind),
        guidance_power=row["scale_pow" if maskbit else "guidance_scale_pow"],
    )
    return settings, extra


RUNS = [
    (name, family["settings"][name], run)
    for family in (TITOK, MASKBIT)
    for name in family["settings"]
    for run in (family["published_runs"][name], *family["per_step"][name])
]


@pytest.mark.parametrize(
    ("name", "row", "run"), RUNS, ids=[f"{name}-{len(run['gumbel_scale'])}" for name, _, run in RUNS]
)
def test_guidance_noise_and_temperature_of_every_step_are_the_originals(name, row, run):
    settings, extra = published(name, row | {"steps": len(run["gumbel_scale"])})
    schedule, guidance = SCHEDULES[settings.schedule], settings.guidance_over_steps()
    steps = steps_of(settings.steps, settings.schedule)
    weights = [guidance.at(schedule.guidance_left(step.done, step.steps)) - extra for step in steps]
    assert weights == pytest.approx(run["guidance_weight"], abs=1e-6)
    noise = [settings.selection_noise * schedule.noise_left(step.done, step.steps) for step in steps]
    assert noise == pytest.approx(run["gumbel_scale"], abs=1e-5)
    start, end = settings.temperature if isinstance(settings.temperature, tuple) else (settings.temperature,) * 2
    temperatures = [schedule.temperature(start, end, step.done, step.steps) for step in steps]
    assert temperatures == pytest.approx(run["softmax_temperature"], abs=1e-6)


def test_haltons_guidance_and_temperature_of_every_step_are_the_originals():
    for row in HALTON["guidance"]:
        schedule = {"halton": "halton", "confidence": "halton-confidence"}[row["sampler"]]
        if not isinstance(row.get("weight_at_step"), list) or row["steps"] == 1:
            continue
        kind = "constant" if schedule == "halton" else "linear"
        guidance, left = Guidance(1 + row["w"], kind), SCHEDULES[schedule].guidance_left
        weights = [guidance.at(left(done, row["steps"])) - 1 for done in range(row["steps"])]
        assert weights == pytest.approx(row["weight_at_step"], abs=1e-5)
    rows = [row for row in HALTON["softmax_multiplier"] if row.get("temp_pow") == 1 and not row["temp_warmup"]]
    assert rows
    for row in rows:
        ends = 1 / row["sm_temp_min"], 1 / row["sm_temp_max"]
        made = [SCHEDULES["halton"].temperature(*ends, done, row["steps"]) for done in range(row["steps"])]
        assert [1 / value for value in made] == pytest.approx(row["logits_multiplied_by"], abs=1e-5)


def test_haltons_order_is_the_originals_and_can_be_rolled():
    for side, order in HALTON["halton_order"].items():
        ranks = halton_ranks(int(side), int(side))
        assert sorted(range(len(ranks)), key=ranks.__getitem__) == order
    seeds, mask = torch.arange(50), torch.ones(50, 16, dtype=torch.bool)
    proposal = Proposal(mask.long(), mask, None, seeds, Step(2))
    plain, rolled = HaltonScorer((4, 4)), HaltonScorer((4, 4), roll=True)
    offsets = rolled.offsets(seeds, 16)
    assert set(offsets.tolist()) > {0, 7, 15}
    orders = (-rolled.score(proposal)).argsort(1)
    old = (-plain.score(proposal)).argsort(1)
    for row in range(50):  # position j of the new order is position (j - o) mod N of the old
        assert orders[row].equal(old[row].roll(int(offsets[row])))


def stand_in():
    """The network of the official decodes: logits depend on the token to the left."""
    table = MASKGIT["table"]
    best, gap = torch.tensor(table["best"]), torch.tensor(table["gap"])

    def network(masked_tokens, labels):
        left = masked_tokens.roll(1, dims=1)  # the mask id is the number of codes
        places = torch.arange(table["n"]).expand_as(left)
        logits = torch.zeros(*left.shape, table["codes"])
        return logits.scatter(2, best[places, left][..., None], gap[places, left][..., None])

    return as_generator(network, num_tokens=table["n"], codebook_size=table["codes"], mask_id=table["codes"])


@pytest.mark.parametrize("run", MASKGIT["deterministic_decodes"], ids=lambda run: run["name"])
def test_official_maskgit_decodes_token_for_token(run):
    generator, tokens = stand_in(), torch.tensor(run["inputs"])
    free, tokens = tokens < 0, tokens.clamp(min=0)
    plan = Plan.make(free.sum(1).tolist(), run["steps"], schedule=SCHEDULES["maskgit"])
    late = run["start_iter"]  # the steps before it hide everything again, and have no effect
    steps = (dataclasses.replace(step, num_masked=plan.num_free) if step.done < late else step for step in plan.steps)
    plan = dataclasses.replace(plan, steps=tuple(steps))
    seen = {}

    def on_step(proposal, scores, mask):
        seen[proposal.step.done] = torch.where(mask, -1, proposal.tokens)

    start = Start(tokens, free, free, None, torch.arange(len(tokens)), plan)
    result = run_loop(generator, ConfidenceScorer(0.0, "maskgit"), start, 0.0, on_step)
    assert result.tolist() == run["result"]
    for index, after in seen.items():
        if index < run["steps"] - 1 and not late:  # the original counts from the late start, a plan from the first step
            assert after.tolist() == run["tokens_after_step"][index], index


def test_confidence_has_the_authors_form():
    mask = torch.tensor([[True, True, False]])
    logits = torch.tensor([[[2.0, 0.0], [1.0, 3.0], [0.0, 0.0]]])
    positions = torch.tensor([[0, 1, 2]])
    made = Proposal(torch.tensor([[0, 0, 1]]), mask, None, torch.tensor([0]), Step(1), positions, logits, None, 0.5)
    log_p, tempered = logits.log_softmax(-1)[..., 0], (logits / 0.5).log_softmax(-1)[..., 0]
    expected = {"paper": log_p, "maskgit": log_p, "maskbit": tempered, "titok": logits[..., 0] / 0.5}
    for schedule, values in expected.items():
        score = ConfidenceScorer(1.0, schedule).score(made)
        torch.testing.assert_close(score[0, :2], values[0, :2])
        assert score[0, 2] == torch.inf


def test_titok_samples_codes_with_the_noise_as_a_temperature():
    """argmax(logits / T + t G) is a sample of softmax(logits / (T t)); in the last step t is 0."""
    scorer = ConfidenceScorer(8.0, "titok")
    assert [scorer.code_noise(step) for step in steps_of(4, "titok")] == [6.0, 4.0, 2.0, 0.0]
    assert [ConfidenceScorer(8.0, "maskbit").code_noise(step) for step in steps_of(4, "maskbit")] == [1.0] * 4
    heats = []
    network = torch.nn.Embedding(5, 4)
    generator = as_generator(lambda tokens, labels: network(tokens), num_tokens=9, codebook_size=4, mask_id=4)
    options = {"steps": 4, "temperature": TEMPERATURES, "schedule": "titok"}
    sample(generator, scorer, None, [1, 2], on_step=lambda p, s, m: heats.append(p.temperature), **options)
    assert heats == pytest.approx([1.1, 0.9, 0.7, 0.5])
    greedy = sample(generator, ConfidenceScorer(0.0, "titok"), None, [1, 2], **options)
    assert (greedy == network.weight[4].argmax()).all()


class Guided:
    """A network with a null class that counts what it is asked."""

    num_tokens, codebook_size, mask_id, num_classes, null_class = 9, 4, 4, 2, True

    def __init__(self):
        self.rows = []
        self.weights = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))

    def __call__(self, tokens, labels):
        self.rows.append(len(tokens))
        return self.weights[tokens, labels[:, None]]


def test_guidance_that_starts_at_none_makes_one_evaluation_then_two():
    network = Guided()
    generator = as_generator(network)
    generator.null_class = True
    settings = SamplingSettings("confidence", 4, schedule="titok", guidance=3.0, guidance_schedule="linear")
    seen = []
    steps = guided(generator, settings.guidance_over_steps(), SCHEDULES["titok"])
    options = {"steps": 4, "schedule": "titok"}
    sample(steps, ConfidenceScorer(1.0, "titok"), [0, 1], [5, 6], on_step=lambda p, *_: seen.append(p), **options)
    assert network.rows == [2, 4, 4, 4]  # both evaluations of a step are one batch
    assert settings.nfe(9) == 7
    assert dataclasses.replace(settings, guidance_schedule="constant").nfe(9) == 8
    last = seen[-1]
    tokens = torch.where(last.mask, 4, last.tokens)
    with_class, null = (
        network.weights[tokens, label] for label in (torch.tensor([[0], [1]]), torch.tensor([[2], [2]]))
    )
    expected = null + (1 + 2 * 0.75) * (with_class - null)
    torch.testing.assert_close(last.logits, take(expected, last.positions))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "maskgit2"}, "schedule is 'maskgit2'; choose one of paper, maskgit"),
        ({"guidance_schedule": "power"}, "guidance_schedule is 'power'; choose one of constant, linear, cosine"),
        ({"guidance_power": 0.0}, "guidance_power is 0.0; it must be a positive number"),
        ({"guidance": float("nan")}, "guidance is nan; it must be finite"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        SamplingSettings(**changes)
