"""Sampling on a stand-in for a GPU: no tensor is left on the CPU, and no step makes the host wait for the device."""

import pytest
import torch
from stand_in_gpu import StandInGpu

from tokencritic.guidance import guided
from tokencritic.models.generator import Generator
from tokencritic.models.halton import HaltonConfig, HaltonGenerator
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.maskbit import MaskBitConfig, MaskBitGenerator
from tokencritic.models.titok import BertConfig, BertGenerator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.models.uvit import UViTConfig, UViTGenerator
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.scorers import CriticScorer, Judges, make_scorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.starts import edit, refine, sample
from tokencritic.sampling.trace import Trace
from tokencritic.schedules import Guidance

SIZES = {"num_tokens": 16, "codebook_size": 20, "num_classes": 3, "width": 16, "layers": 2, "heads": 2, "mlp_width": 32}
# MaskBit's tokens are parts of places: 8 places of 2 parts, of 4 bits each.
MASKBIT_SIZES = {name: value for name, value in SIZES.items() if name not in ("num_tokens", "codebook_size")}
FAMILIES = {
    "maskgit": lambda: Generator(TransformerConfig(**SIZES, null_class=True)),
    "without classes": lambda: Generator(TransformerConfig(**SIZES | {"num_classes": 0})),
    "halton": lambda: HaltonGenerator(HaltonConfig(**SIZES)),
    "bert": lambda: BertGenerator(BertConfig(**SIZES)),
    "uvit": lambda: UViTGenerator(UViTConfig(**SIZES | {"layers": 3})),
    "maskbit": lambda: MaskBitGenerator(MaskBitConfig(**MASKBIT_SIZES, places=8, splits=2, bits_per_part=4)),
}
LABELS = [2, 0, 0, 1]
GUIDANCES = {"none": 1.0, "constant": 2.5, "linear": Guidance(2.5, "linear"), "cosine": Guidance(2.5, "cosine")}


class Model:
    """Networks of the same random weights each time, on the device on which they are asked for."""

    def __init__(self, device="cpu", family="maskgit", **options):
        torch.manual_seed(0)
        self.generator = FAMILIES[family]()
        for parameter in self.generator.parameters():  # so that the logits say something
            parameter.data += 0.2 * torch.randn_like(parameter)
        critic = self.generator.start_critic(**options)
        torch.nn.init.normal_(critic.head.weight)
        features = {"num_features": self.generator.num_features, "feature_width": self.generator.feature_width}
        sizes = {name: vars(self.generator)[name] for name in ("num_tokens", "codebook_size", "num_classes")}
        sizes |= {"width": 16, "layers": 1, "heads": 2, "mlp_width": 16}
        inline = InlineCritic(InlineCriticConfig(**sizes, **features))
        for network in (self.generator, critic, inline):
            network.to(device)
        self.judges = Judges(critic, inline, (4, 4))

    def scorer(self, **settings):
        return make_scorer(SamplingSettings(**settings), self.judges)


def assert_same_without_waiting(run, **options):
    """run(model, steps, device): the same tokens on both devices, and as many waits in few steps as in many."""
    expected = run(Model(**options), 9, "cpu")
    waits = []
    with StandInGpu() as gpu:
        model = Model(gpu.device, **options)
        for steps in (2, 3, 9):
            gpu.waits.clear()
            found = run(model, steps, gpu.device)
            waits.append(gpu.waits.copy())
        assert found.device == gpu.device
        assert found.cpu().equal(expected)
    _, few, many = waits  # the first run may send what is kept from then on
    assert few == many
    # Before the loop the host sends; after it, it looks whether all was finite.
    assert {wait.partition(",")[0] for wait in many[:-1]} <= {"copy to the device"}
    assert many[-1].startswith("copy to the host")


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("guidance", GUIDANCES)
def test_every_sampler_with_guidance(sampler, guidance):
    def run(model, steps, device):
        generator = guided(model.generator, GUIDANCES[guidance])
        return sample(generator, model.scorer(sampler=sampler), LABELS, 7, steps=steps, temperature=(1.2, 0.6))

    assert_same_without_waiting(run)


SETTINGS = {
    "critic window": {"sampler": "critic", "critic_window": (0.7, 0.2)},
    "inline window": {"sampler": "inline", "critic_window": (0.7, 0.2)},
    "Gumbel noise": {"sampler": "critic", "noise_kind": "gumbel"},
    "Halton order, rolled": {"sampler": "halton", "halton_roll": True},
    "noise in the codes": {"sampler": "confidence", "schedule": "titok"},
    "tempered confidence": {"sampler": "confidence", "schedule": "maskbit"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name):
    settings = SETTINGS[name]

    def run(model, steps, device):
        schedule = settings.get("schedule", "paper")
        return sample(model.generator, model.scorer(**settings), LABELS, 7, steps=steps, schedule=schedule)

    assert_same_without_waiting(run)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_a_critic_that_reads_the_mask(family):
    def run(model, steps, device):
        labels = LABELS if model.generator.num_classes else None
        return sample(model.generator, CriticScorer(model.judges.critic), labels, [7, 8, 9, 10], steps=steps)

    assert_same_without_waiting(run, family=family, reads_mask=True)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "without classes"])
@pytest.mark.parametrize("sampler", ["inline", "confidence"])
def test_every_family_with_guidance_that_changes(family, sampler):
    def run(model, steps, device):
        generator = guided(model.generator, GUIDANCES["linear"])
        return sample(generator, model.scorer(sampler=sampler), LABELS, 7, steps=steps)

    assert_same_without_waiting(run, family=family)


@pytest.mark.parametrize("sampler", ["critic", "inline"])
def test_refinement(sampler):
    tokens = torch.arange(64).view(4, 16) % 20

    def run(model, steps, device):
        return refine(model.generator, model.scorer(sampler=sampler), tokens, LABELS, 7, steps=steps)

    assert_same_without_waiting(run)


@pytest.mark.parametrize("sampler", ["critic", "inline", "confidence"])
def test_editing(sampler):
    tokens = torch.arange(64).view(4, 16) % 20
    region = torch.arange(16) % torch.tensor([[2], [3], [4], [1]]) == 0

    def run(model, steps, device):
        return edit(model.generator, model.scorer(sampler=sampler), tokens, region, LABELS, 7, steps=steps)

    assert_same_without_waiting(run)


def test_what_is_given_may_be_on_the_device_already():
    with StandInGpu() as gpu:
        model, labels = Model(gpu.device), torch.tensor(LABELS, device=gpu.device)
        seeds, tokens = torch.arange(4, device=gpu.device), torch.zeros(4, 16, dtype=torch.int64, device=gpu.device)
        region = torch.ones(16, dtype=torch.bool, device=gpu.device)
        edited = edit(model.generator, model.scorer(sampler="critic"), tokens, region, labels, seeds, steps=3)
        sampled = sample(model.generator, model.scorer(sampler="critic"), labels, seeds, steps=3)
        refined = refine(model.generator, model.scorer(sampler="critic"), tokens, labels, seeds, steps=3)
        assert {found.device for found in (edited, sampled, refined)} == {gpu.device}


def test_a_trace_is_read_once_the_run_is_over():
    traces = {}

    def run(model, steps, device):
        traces[device, steps] = trace = Trace(most_images=3)
        return sample(model.generator, model.scorer(sampler="critic"), LABELS, 7, steps=steps, on_step=trace)

    assert_same_without_waiting(run)
    with StandInGpu() as gpu:
        recorded = traces[gpu.device, 9].steps
        assert len(gpu.waits) >= len(recorded)
    for found, expected in zip(recorded, traces["cpu", 9].steps, strict=True):
        assert found.proposal.equal(expected.proposal)
        assert found.hidden.equal(expected.hidden)


def test_the_stand_in_notices_waits_and_forgotten_moves():
    with StandInGpu() as gpu:
        values = torch.tensor([3, 1, 3], device=gpu.device)
        gpu.waits.clear()
        values[torch.arange(2, device=gpu.device)]
        torch.ones(3, device=gpu.device) * 2 + values
        torch.tensor([1, 2]).to(gpu.device, non_blocking=True)
        assert gpu.waits == []
        waiting = [
            lambda: values[values > 1],
            lambda: values.unique(),
            lambda: values.nonzero(),
            lambda: bool(values.any()),
            lambda: values.sum().item(),
            lambda: values.tolist(),
            lambda: values.cpu(),
            lambda: values.equal(values),
            lambda: torch.tensor([1, 2], device=gpu.device),
            lambda: values.masked_select(values > 1),
        ]
        for wait in waiting:
            wait()
        expected = ["boolean indexing", "unique", "nonzero", "item", "item", "copy to the host", "copy to the host"]
        assert gpu.kinds == [*expected, "equal", "copy to the device", "masked_select"]
        with pytest.raises(RuntimeError, match="two devices"):
            values + torch.ones(3)
