"""Compiled networks: few graphs for a whole run, and the results of eager ones. The graphs are counted, then run eagerly."""

import pytest
import torch
from sampling.test_on_gpu import Model
from torch._dynamo.testing import CompileCounter

from tokencritic import TokenCriticPipeline
from tokencritic.devices import compile_blocks
from tokencritic.guidance import guided
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.sampling.scorers import ConfidenceScorer
from tokencritic.sampling.starts import sample
from tokencritic.schedules import Guidance
from tokencritic.training.losses import generator_loss

MOST_GRAPHS = 2  # the block, and the last one where it is evaluated at given positions
LABELS = torch.arange(7)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("sampler", ["critic", "inline", "confidence", "random-order"])
def test_a_run_makes_few_graphs_and_the_same_tokens(sampler):
    pipe = TokenCriticPipeline.from_pretrained("fashion-mnist")
    settings = pipe.settings(sampler=sampler, steps=9)
    expected = pipe.sample_tokens(LABELS, 3, settings, batch_size=3)
    counter = CompileCounter()
    pipe.compile(backend=counter)
    found = pipe.sample_tokens(LABELS, 3, settings, batch_size=3)  # the last batch has one image
    assert (found == expected).float().mean() > 0.99  # what is computed together may round otherwise
    assert 1 <= counter.frame_count <= MOST_GRAPHS


def test_guidance_that_changes_from_step_to_step():
    torch.manual_seed(0)
    sizes = {"num_tokens": 16, "codebook_size": 20, "num_classes": 3, "width": 16, "layers": 3, "heads": 2}
    generator = Generator(TransformerConfig(**sizes, mlp_width=32, null_class=True)).eval()
    parts = guided(generator, Guidance(3.0, "linear")), ConfidenceScorer()
    expected = sample(*parts, [0, 1, 2], 5, steps=8)
    counter = CompileCounter()
    compile_blocks(generator, backend=counter)
    parts = guided(generator, Guidance(3.0, "linear")), ConfidenceScorer()
    assert (sample(*parts, [0, 1, 2], 5, steps=8) == expected).float().mean() > 0.95
    assert 1 <= counter.frame_count <= MOST_GRAPHS


@pytest.mark.parametrize("family", ["halton", "bert", "uvit", "maskbit"])
def test_every_family(family):
    model = Model(family=family)
    expected = sample(model.generator, model.scorer(sampler="critic"), [0, 1, 2], 5, steps=8)
    counter = CompileCounter()
    compile_blocks(model.generator, model.judges.critic, backend=counter)
    found = sample(model.generator, model.scorer(sampler="critic"), [0, 1, 2], 5, steps=8)
    assert (found == expected).float().mean() > 0.95
    # A U-ViT has two kinds of blocks: those before and those after its middle, which join what was kept.
    assert 1 <= counter.frame_count <= MOST_GRAPHS + (family == "uvit")


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch looks at it, and hides the warning its own way
def test_steps_of_training_share_their_graphs():
    torch.manual_seed(0)
    sizes = {"num_tokens": 16, "codebook_size": 20, "num_classes": 3, "width": 16, "layers": 3, "heads": 2}
    generator = Generator(TransformerConfig(**sizes, mlp_width=32, dropout=0.0)).train()
    tokens, labels = torch.arange(64).view(4, 16) % 20, torch.arange(4) % 3
    seeds = [torch.arange(4) + 4 * step for step in range(6)]
    expected = [generator_loss(generator, tokens, labels, some).mean for some in seeds]
    counter = CompileCounter()
    compile_blocks(generator, backend=counter)
    found = [generator_loss(generator, tokens, labels, some).mean for some in seeds]
    torch.testing.assert_close(found, expected)
    assert counter.frame_count == 1
    found[0].backward()
