"""The base classes and their defaults, and the adapters that make whole parts of plain callables."""

import dataclasses
import importlib
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tokencritic.adapters import as_classifier, as_critic, as_generator, as_scorer, as_tokenizer
from tokencritic.contracts import ImageClassifier, ImageTokenizer, MaskedGenerator, Part, TokenCritic, evaluating
from tokencritic.errors import InputError
from tokencritic.guidance import guided as guided_by
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.plan import Step
from tokencritic.randomness import Use, uniforms
from tokencritic.sampling.scorers import ConfidenceScorer, CriticScorer, RandomOrderScorer
from tokencritic.sampling.starts import edit, refine, sample
from tokencritic.scoring import Proposal, Scorer

NUM_TOKENS, CODES, CLASSES = 9, 5, 3
LABELS = torch.tensor([0, 2, 1, 2])
TABLE = torch.randn(CLASSES + 1, CODES + 1, CODES, generator=torch.Generator().manual_seed(0))


def table_logits(tokens, labels):
    """Logits by the label and the left neighbour: (b, n, CODES), of tokens with CODES for hidden."""
    return 3 * TABLE[labels[:, None], tokens.roll(1, 1)]


class TableGenerator(MaskedGenerator):
    num_tokens, codebook_size, mask_id, num_classes = NUM_TOKENS, CODES, CODES, CLASSES

    def __call__(self, masked_tokens, labels, /):
        return table_logits(masked_tokens, labels)


class GuidableGenerator(TableGenerator):
    null_class = True


def masked(seed=0, count=4):
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(count, NUM_TOKENS, generator=rng) < 0.5
    return torch.randint(0, CODES, mask.shape, generator=rng).masked_fill(mask, CODES), mask


def test_a_part_without_networks_is_on_the_cpu_in_float32():
    part = Part()
    assert part.networks == ()
    assert (part.device, part.dtype) == (torch.device("cpu"), torch.float32)
    with pytest.raises(InputError, match="a Part has no fingerprint, so its results cannot be cached"):
        part.fingerprint()


def test_a_part_is_where_its_weights_are():
    class Whole(Part):
        networks = ()

    part = Whole()
    embedding = nn.Module()
    embedding.ids = nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False)
    part.networks = (nn.Identity(), embedding, nn.Linear(2, 2, dtype=torch.bfloat16, device="meta"))
    assert part.dtype == torch.bfloat16  # integers have no precision
    assert part.device == torch.device("cpu")
    part.networks = part.networks[::-1]
    assert part.device == torch.device("meta")


def test_a_subclass_of_the_generator_states_only_what_differs():
    generator = TableGenerator()
    assert (generator.null_class, generator.num_labels) == (False, CLASSES)
    assert GuidableGenerator().num_labels == CLASSES + 1
    tokens, mask = masked()
    logits = generator(tokens, LABELS)
    assert generator.logits_at(tokens, LABELS, mask).equal(logits[mask])
    indices = torch.tensor([[0, 8], [3, 3], [5, 1], [7, 2]])
    assert generator.logits_at(tokens, LABELS, indices).equal(torch.stack([logits[i, indices[i]] for i in range(4)]))
    assert guided_by(generator, 1) is generator


def test_guidance_is_the_formula_for_every_generator_with_a_null_class():
    generator, (tokens, mask) = GuidableGenerator(), masked()
    null = generator(tokens, torch.full_like(LABELS, CLASSES))
    expected = null + 2.5 * (generator(tokens, LABELS) - null)
    guided = guided_by(generator, 2.5)
    torch.testing.assert_close(guided(tokens, LABELS), expected)
    torch.testing.assert_close(guided.logits_at(tokens, LABELS, mask), expected[mask])
    assert (guided.num_tokens, guided.codebook_size, guided.mask_id) == (NUM_TOKENS, CODES, CODES)
    assert guided.num_classes == CLASSES

    class Elsewhere(GuidableGenerator):  # it has no weights, so only it knows where it computes
        device = torch.device("meta")

    assert guided_by(Elsewhere(), 2.5).device == torch.device("meta")
    with pytest.raises(InputError, match=r"guidance is 2\.5 but labels is None"):
        guided(tokens, None)
    with pytest.raises(InputError, match=r"guidance is 2\.5; expected 1 for a generator without null_class"):
        guided_by(TableGenerator(), 2.5)


def test_a_scorer_adds_no_noise_and_may_revoke_by_default():
    class Zeros(Scorer):
        def score(self, proposal):
            return torch.zeros(proposal.tokens.shape)

    scorer = Zeros()
    proposal = Proposal.given(torch.zeros(2, 3, dtype=torch.int64), None)
    assert scorer.noise(proposal) == 0
    assert scorer.revokes(Step())
    assert scorer.networks == ()
    scorer.check(TableGenerator())


def test_given_tokens_are_all_to_be_judged():
    tokens = torch.arange(6).reshape(2, 3)
    proposal = Proposal.given(tokens, torch.tensor([1, 0]))
    assert proposal.mask.all()
    assert proposal.seeds.tolist() == [0, 0]
    with pytest.raises(InputError, match="only defined for sampled tokens"):
        proposal.confidence()
    late = Proposal.given(tokens, None, torch.tensor([4, 5]), Step(index=3))
    u = uniforms(torch.tensor([4, 5]), 3, Use.SELECT, step=3)
    assert late.selection_uniforms().equal(u)
    assert late.selection_gumbel().allclose(-(-u.log()).log())


def test_modes_are_restored_even_after_an_error():
    network = nn.Sequential(nn.Dropout(), nn.Dropout().eval())

    def fail():
        with evaluating(network):
            assert not any(part.training for part in network.modules())
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert [part.training for part in network.modules()] == [True, True, False]


def by_own_ids(mask_id, first_code, vocabulary=None):
    """The same generator with token ids of its own. vocabulary: its logits cover so many ids; None for the codes alone."""

    def stranger(tokens, labels):
        assert set(tokens.unique().tolist()) <= {mask_id, *range(first_code, first_code + CODES)}
        logits = table_logits(torch.where(tokens == mask_id, CODES, tokens - first_code), labels)
        if vocabulary is None:
            return logits
        whole = torch.full((*tokens.shape, vocabulary), 100.0)  # ids that are no codes are likeliest of all
        whole[..., first_code : first_code + CODES] = logits
        return whole

    sizes = {"num_tokens": NUM_TOKENS, "codebook_size": CODES, "num_classes": CLASSES}
    return as_generator(stranger, mask_id=mask_id, first_code=first_code, **sizes)


STRANGERS = {
    "mask 0, codes from 1": by_own_ids(0, 1),
    "mask 0, codes from 1, logits over the vocabulary": by_own_ids(0, 1, vocabulary=CODES + 1),
    "mask last": by_own_ids(CODES, 0),
    "mask last, logits over the vocabulary": by_own_ids(CODES, 0, vocabulary=CODES + 1),
    "mask far away": by_own_ids(2024, 0),
    "codes in the middle": by_own_ids(40, 7, vocabulary=41),
}


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("scorer", [ConfidenceScorer(), RandomOrderScorer(), CriticScorer(lambda x, _: -x.float())])
def test_a_generator_with_other_token_ids_samples_the_same_tokens(name, scorer):
    ours, stranger = TableGenerator(), STRANGERS[name]
    assert (stranger.mask_id, stranger.num_labels) == (CODES, CLASSES)
    tokens, mask = masked()
    assert stranger(tokens, LABELS).equal(ours(tokens, LABELS))
    sampled = sample(stranger, scorer, LABELS, 3, steps=6)
    assert 0 <= sampled.min() <= sampled.max() < CODES  # never a mask
    assert sampled.equal(sample(ours, scorer, LABELS, 3, steps=6))
    assert edit(stranger, scorer, sampled, mask, LABELS).equal(edit(ours, scorer, sampled, mask, LABELS))
    if not isinstance(scorer, ConfidenceScorer):
        assert refine(stranger, scorer, sampled, LABELS).equal(refine(ours, scorer, sampled, LABELS))


def test_sizes_are_read_from_attributes_and_must_agree_with_those_given():
    class Sized(nn.Module):
        num_tokens, codebook_size, mask_id, num_classes = NUM_TOKENS, CODES, CODES, CLASSES

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, tokens, labels):
            return self.scale * table_logits(tokens, labels)

    own = Sized().double()
    generator = as_generator(own)
    assert (generator.num_tokens, generator.num_classes, generator.networks) == (NUM_TOKENS, CLASSES, (own,))
    assert generator.dtype == torch.float64
    assert as_generator(generator) is generator
    assert as_generator(TableGenerator()).num_tokens == NUM_TOKENS
    with pytest.raises(InputError, match="num_tokens is 8; the generator's attribute num_tokens is 9"):
        as_generator(own, num_tokens=8)
    with pytest.raises(InputError, match="the generator has no attribute mask_id; pass mask_id= to as_generator"):
        as_generator(table_logits, num_tokens=NUM_TOKENS, codebook_size=CODES)


@pytest.mark.parametrize(("mask_id", "first_code"), [(0, 0), (4, 0), (1, 1), (5, 1)])
def test_a_mask_that_is_one_of_the_codes_is_refused(mask_id, first_code):
    codes = f"{first_code} to {first_code + CODES - 1}"
    with pytest.raises(InputError, match=f"mask_id is {mask_id}, one of the codes {codes}; check first_code="):
        by_own_ids(mask_id, first_code)


@pytest.mark.parametrize("shape", [(2, 8, CODES), (2, 9, CODES - 1), (1, 9, CODES), (9, CODES), (2, 9, CODES + 1, 1)])
def test_logits_of_a_wrong_shape_are_refused(shape):
    generator = as_generator(lambda *_: torch.zeros(shape), num_tokens=9, codebook_size=CODES, mask_id=CODES)
    with pytest.raises(InputError, match=r"logits of shape \(.*\); expected \(2, 9, 5\)"):
        generator(torch.zeros(2, 9, dtype=torch.int64), None)


def test_logits_that_end_before_the_last_code_are_refused():
    generator = by_own_ids(0, 3, vocabulary=CODES + 3)
    tokens, _ = masked()
    assert generator(tokens, LABELS).shape == (4, NUM_TOKENS, CODES)
    short = as_generator(
        lambda tokens, _: torch.zeros(*tokens.shape, CODES + 2),
        num_tokens=NUM_TOKENS,
        codebook_size=CODES,
        mask_id=0,
        first_code=3,
    )
    with pytest.raises(InputError, match="logits of shape"):
        short(tokens, LABELS)


@pytest.mark.parametrize("null", [{"null_class": True}, {"null_label": -7}, {"null_class": True, "null_label": 2024}])
def test_a_null_class_of_its_own_guides_as_ours_does(null):
    own_null, ours, (tokens, _) = null.get("null_label", CLASSES), GuidableGenerator(), masked()

    def stranger(tokens, labels):
        assert set(labels.tolist()) <= {own_null, *range(CLASSES)}
        hidden = torch.where(tokens == 0, CODES, tokens - 1)
        return table_logits(hidden, torch.where(labels == own_null, CLASSES, labels))

    sizes = {"num_tokens": NUM_TOKENS, "codebook_size": CODES, "num_classes": CLASSES}
    generator = as_generator(stranger, mask_id=0, first_code=1, **sizes, **null)
    assert (generator.null_class, generator.num_labels) == (True, CLASSES + 1)
    torch.testing.assert_close(guided_by(generator, 2.5)(tokens, LABELS), guided_by(ours, 2.5)(tokens, LABELS))
    made, expected = (sample(guided_by(one, 3.0), ConfidenceScorer(), LABELS, 3, steps=6) for one in (generator, ours))
    assert made.equal(expected)
    assert not made.equal(sample(ours, ConfidenceScorer(), LABELS, 3, steps=6))


def test_a_null_class_and_ids_are_read_from_attributes():
    class Sized(nn.Module):
        num_tokens, codebook_size, mask_id, first_code, num_classes, null_label = 2, 3, 0, 1, 4, 9

        def forward(self, tokens, labels):
            return nn.functional.one_hot(tokens, 4).float() + labels[:, None, None]

    generator = as_generator(Sized())
    logits = generator(torch.tensor([[0, 3], [2, 1]]), torch.tensor([4, 3]))  # 3 is hidden, label 4 is no class
    assert logits.tolist() == [[[10, 9, 9], [9, 9, 9]], [[3, 3, 4], [3, 4, 3]]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"null_class": True}, "null_class is true but num_classes is 0"),
        ({"null_class": False, "null_label": 9, "num_classes": 3}, "null_label is 9 but null_class is false"),
        ({"null_label": 2, "num_classes": 3}, "null_label is 2; expected a label outside the classes 0 to 2"),
    ],
)
def test_a_null_class_that_cannot_be_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        as_generator(table_logits, num_tokens=NUM_TOKENS, codebook_size=CODES, mask_id=CODES, **given)


def test_a_generator_without_classes_is_given_no_labels():
    def stranger(tokens, labels):
        assert labels is None
        return torch.zeros(*tokens.shape, CODES)

    generator = as_generator(stranger, num_tokens=NUM_TOKENS, codebook_size=CODES, mask_id=CODES)
    assert (generator.num_classes, generator.num_labels, generator.null_class) == (0, 0, False)
    assert sample(generator, ConfidenceScorer(), None, range(3), steps=4).shape == (3, NUM_TOKENS)


@pytest.mark.parametrize("returned", [None, (1, 2)])
def test_what_is_no_logits_is_refused(returned):
    generator = as_generator(lambda *_: returned, num_tokens=9, codebook_size=CODES, mask_id=CODES)
    with pytest.raises(InputError, match=f"the generator returned a {type(returned).__name__}; expected a tensor"):
        generator(torch.zeros(2, 9, dtype=torch.int64), None)
    with pytest.raises(InputError, match="the generator is a dict; expected a MaskedGenerator, or a callable"):
        as_generator({})


def test_an_adapted_critic_has_what_it_states_and_the_defaults_for_the_rest():
    plain = as_critic(lambda tokens, labels: tokens.float())
    assert (plain.num_tokens, plain.codebook_size, plain.num_classes) == (None, None, None)
    assert (plain.reads_mask, plain.ratio_conditioned) == (False, False)
    assert as_critic(plain) is plain
    reader = SimpleNamespace(reads_mask=True, codebook_size=CODES)
    adapted = as_critic(reader)
    assert (adapted.reads_mask, adapted.codebook_size) == (True, CODES)
    larger = as_critic(SimpleNamespace(codebook_size=CODES + 1))
    with pytest.raises(InputError, match="the critic's codebook_size is 6 but the generator's is 5"):
        CriticScorer(larger).check(TableGenerator())
    CriticScorer(plain).check(TableGenerator())


def test_an_adapted_tokenizer_must_be_one():
    sizes = {"num_tokens": 4, "codebook_size": 3, "image_size": 8, "channels": 1}
    whole = sizes | {"encode": lambda x: x + 1, "decode": lambda x: x - 1}
    tokenizer = as_tokenizer(SimpleNamespace(**whole, grid=(2, 2)))
    assert (tokenizer.num_tokens, tokenizer.grid, tokenizer.image_size, tokenizer.margin) == (4, (2, 2), 8, 0)
    assert tokenizer.decode(tokenizer.encode(torch.tensor(7))) == 7
    assert as_tokenizer(tokenizer) is tokenizer
    for name in whole:
        missing = SimpleNamespace(**{key: value for key, value in whole.items() if key != name})
        with pytest.raises(InputError, match=f"the tokenizer, a SimpleNamespace, has no {name}"):
            as_tokenizer(missing)


def test_an_adapted_classifier_judges_in_its_own_precision_and_evaluation_mode():
    network = nn.Sequential(nn.Dropout(0.9), nn.Flatten(), nn.Linear(4, 2, dtype=torch.float64)).train()
    classifier = as_classifier(network)
    logits = classifier.classify(torch.ones(3, 1, 2, 2))
    assert logits.dtype == torch.float64
    assert logits.equal(logits[:1].expand(3, -1))
    assert not logits.requires_grad
    assert network.training
    assert as_classifier(classifier) is classifier


def test_a_function_of_a_proposal_is_a_scorer():
    def by_code(proposal):
        return -proposal.tokens.float()

    scorer = as_scorer(by_code)
    proposal = Proposal.given(torch.arange(6).reshape(2, 3), None)
    assert scorer.score(proposal).equal(by_code(proposal))
    assert scorer.noise(proposal) == 0
    assert scorer.revokes(Step())
    assert as_scorer(scorer) is scorer
    with_class = sample(TableGenerator(), by_code, LABELS, steps=4)
    assert with_class.equal(sample(TableGenerator(), scorer, LABELS, steps=4))

    class Network(nn.Module):
        def forward(self, proposal):
            assert not self.training
            return torch.zeros(proposal.tokens.shape)

    network = Network()
    sample(TableGenerator(), network, LABELS, steps=3)  # switched to evaluation while the loop runs
    assert network.training


def test_an_adapted_part_keeps_its_own_device_and_fingerprint():
    stated = SimpleNamespace(device="meta", fingerprint=lambda: "abc")
    part = as_critic(stated)
    assert part.device == torch.device("meta")
    assert part.fingerprint() == "abc"
    with pytest.raises(
        InputError, match=r"the function has no fingerprint, .*; make it a torch module, or define fingerprint"
    ):
        as_critic(lambda *_: None).fingerprint()
    assert as_critic(lambda *_: None).identity() == "function"


def test_a_torch_module_is_known_by_its_weights_attributes_and_source():
    class Scaled(nn.Linear):
        scale = 2.0

    def made(seed=0, **attributes):
        torch.manual_seed(seed)
        network = Scaled(2, 2)
        vars(network).update(attributes)
        return as_critic(network)

    first = made()
    assert first.fingerprint() == made().fingerprint() != first.identity() == made().identity()
    first.inner.eval()
    assert first.fingerprint() == made().fingerprint()  # the mode changes with every evaluation
    others = [made(seed=1), made(scale=3.0), as_critic(nn.Linear(2, 2)), made(name="other")]
    assert len({one.fingerprint() for one in (first, *others)}) == 5
    assert len({one.identity() for one in (first, *others)}) == 5


def test_a_change_of_the_code_is_another_fingerprint_of_the_same_network(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = "from torch import nn\nclass Net(nn.Linear):\n    pass\n"
    (tmp_path / "net_of_the_test.py").write_text(source)
    network = as_critic(importlib.import_module("net_of_the_test").Net(2, 2))
    before = network.fingerprint(), network.identity()
    (tmp_path / "net_of_the_test.py").write_text(source + "# changed\n")
    assert network.fingerprint() != before[0]
    assert network.identity() == before[1]


def test_a_generator_that_lacks_what_has_no_default_is_refused():
    class Unsized(MaskedGenerator):
        num_tokens, mask_id = 4, 3

    with pytest.raises(
        InputError, match="the generator, a Unsized, has no codebook_size; set it as MaskedGenerator documents"
    ):
        as_generator(Unsized())

    class Shadowed(MaskedGenerator, nn.Module):
        num_tokens, codebook_size, mask_id = 4, 3, 3

        def forward(self, tokens, labels):
            return torch.zeros(*tokens.shape, 3)

    with pytest.raises(
        InputError, match=r"the generator, a Shadowed, has no __call__; define it; a torch module lists"
    ):
        as_generator(Shadowed())


def test_our_models_are_by_the_contracts():
    config = TransformerConfig(num_tokens=4, codebook_size=8, num_classes=2, width=8, layers=1, heads=2, mlp_width=16)
    generator = Generator(dataclasses.replace(config, null_class=True))
    critic = generator.start_critic(ratio_conditioned=True)
    assert isinstance(generator, MaskedGenerator)
    assert isinstance(critic, TokenCritic)
    assert (generator.num_labels, generator.mask_id, generator.networks) == (3, 11, (generator,))
    assert (critic.num_classes, critic.reads_mask, critic.ratio_conditioned) == (2, False, True)
    assert as_generator(generator) is generator
    assert as_critic(critic) is critic
    assert issubclass(ImageTokenizer, Part)
    assert issubclass(ImageClassifier, Part)
