import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from tokencritic import Generator, Given, InputError, TokenCriticPipeline, TransformerConfig, as_generator
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.pipeline_folder import load_critic, load_part
from tokencritic.randomness import candidate_seeds
from tokencritic.sampling.scorers import CriticScorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.starts import edit, refine, sample
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.tokenizers.vqgan import VQGAN, VQGANConfig

NAMES = ("Cat", "dog", "owl")
SIZES = TransformerConfig(
    num_tokens=4, codebook_size=16, num_classes=3, null_class=True, width=16, layers=1, heads=2, mlp_width=32
)


def make_tokenizer(**changes):
    return CompactTokenizer(CompactConfig(**{"image_size": 8, "width": 16, "codebook_size": 16, **changes}))


def no_classes(pipe, num_classes=0):
    """The same with a generator and a critic that have no classes."""
    torch.manual_seed(1)
    generator = Generator(replace(SIZES, num_classes=num_classes, null_class=False)).eval()
    parts = pipe.tokenizer, generator, generator.start_critic().eval(), pipe.classifier
    return TokenCriticPipeline(*parts, defaults=pipe.defaults)


def without_judges(pipe):
    return TokenCriticPipeline(pipe.tokenizer, pipe.generator)


def without_classifier(pipe):
    return TokenCriticPipeline(pipe.tokenizer, pipe.generator, pipe.critic)


GREY = Image.new("L", (8, 8), 128)


@pytest.fixture
def pipe():
    torch.manual_seed(0)
    generator = Generator(SIZES)
    classifier = Classifier(ClassifierConfig(image_size=8, num_classes=3, width=8))
    defaults = SamplingSettings(steps=3, temperature=(1.2, 0.8), selection_noise=0.3)
    parts = make_tokenizer(), generator, generator.start_critic(), classifier
    for part in parts:
        part.eval()
    return TokenCriticPipeline(*parts, class_names=NAMES, defaults=defaults)


def test_the_cost_counts_the_flops_of_every_network():
    pipe = TokenCriticPipeline.from_pretrained("fashion-mnist")
    places, width, mlp, layers, codes = 197, 128, 512, 4, 128
    blocks = layers * (places * (8 * width**2 + 4 * width * mlp) + 4 * places**2 * width)
    generator = blocks + 196 * 2 * width * (width + codes)
    head = 196 * (2 * 4 * width * 64 + 2 * (8 * 64**2 + 4 * 64 * 128) + 2 * 64) + 2 * 4 * 196**2 * 64
    costs = pipe.relative_costs
    assert costs["generator"] == 1
    assert costs["inline_critic"] == pytest.approx(head / generator, rel=0.01)
    assert costs["critic"] == pytest.approx((blocks + 196 * 2 * width * (width + 1)) / generator, rel=0.01)
    settings = pipe.settings(sampler="inline", steps=8)
    assert pipe.cost(settings) == pytest.approx(8 + 6 * costs["inline_critic"])
    chosen = replace(settings, candidates=3)
    assert pipe.cost(chosen) == pytest.approx(3 * (pipe.cost(settings) + costs["classifier"]))
    # A refinement by the critic: it scores the image first, and after all but the last of 9 generator evaluations.
    assert pipe.cost(pipe.sampling.for_refinement(), 0.6) == pytest.approx(9 + 9 * costs["critic"])
    assert pipe.cost(pipe.sampling.for_refinement(sampler="random-remask"), 0.6) == 9
    # Guidance: two generator evaluations in a step, one where its scale is still 1; one head either way.
    guided = [replace(settings, guidance=3.0, guidance_schedule=kind) for kind in ("constant", "linear")]
    assert [pipe.cost(one) - pipe.cost(settings) for one in guided] == pytest.approx([8, 7])


def test_a_folder_comes_back_as_the_same_pipeline(pipe, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    again = TokenCriticPipeline.from_pretrained(tmp_path / "model")
    assert again.class_names == NAMES
    assert again.defaults == pipe.defaults
    assert again.parts.keys() == {"tokenizer", "generator", "critic", "classifier"}
    assert again(["cat", 2], output_type="pt").equal(pipe(["cat", 2], output_type="pt"))
    assert again.tokenizer.fingerprint() == pipe.tokenizer.fingerprint()


def test_critic_and_classifier_are_optional(pipe, tmp_path):
    TokenCriticPipeline(pipe.tokenizer, pipe.generator).save_pretrained(tmp_path)
    again = TokenCriticPipeline.from_pretrained(tmp_path)
    assert again.critic is None
    assert again.classifier is None
    assert len(again(1)) == 1  # the generator's own confidence chooses
    with pytest.raises(InputError, match="sampler is critic but the model has none"):
        again(1, sampler="critic")


def test_images_in_every_form(pipe):
    labels = [0, "dog"]
    tensors, arrays, pictures = (pipe(labels, 2, output_type=form) for form in ("pt", "np", "pil"))
    assert tensors.shape == (4, 1, 8, 8)
    assert arrays.shape == (4, 8, 8, 1)
    assert tensors.min() >= 0
    assert tensors.max() <= 1
    assert np.array_equal(arrays, tensors.permute(0, 2, 3, 1).numpy())
    assert all(isinstance(picture, Image.Image) and picture.mode == "L" for picture in pictures)
    assert np.abs(np.asarray(pictures[3]) / 255 - arrays[3, ..., 0]).max() < 0.5 / 255 + 1e-6


def test_an_image_depends_on_its_own_seed_and_label_alone(pipe):
    images = pipe([0, 1, 2], 3, seed=10, output_type="pt")
    assert images.shape[0] == 9
    assert pipe([1], seed=14, output_type="pt")[0].equal(images[4])  # 10 + 4, the second of class 1
    assert pipe([0, 1, 2], 3, seed=10, output_type="pt", batch_size=2).equal(images)
    assert pipe([1, 0], seed=[14, 10], output_type="pt").equal(images[[4, 0]])
    assert not pipe([0, 1, 2], 3, seed=11, output_type="pt").equal(images)


def test_settings_override_the_defaults(pipe):
    assert pipe.settings(steps=7, temperature=0.5).steps == 7
    assert pipe.settings(temperature=0.5).temperature == 0.5
    assert pipe.settings().selection_noise == 0.3
    for changes in ({"sampler": "random-order"}, {"guidance": 3.0}, {"num_inference_steps": 2}, {"temperature": 0.0}):
        assert pipe([0] * 8, output_type="pt", **changes).shape == (8, 1, 8, 8)


def bright_or_dark(images):
    """Class 0 is brightness, the others are darkness."""
    light = images.mean((1, 2, 3))
    return torch.stack([light, -light, -light], dim=1)


JUDGES = {
    "somebody else's classifier": lambda pipe, tokens, labels: bright_or_dark(pipe.tokenizer.decode(tokens)).softmax(1),
    "classifier": lambda pipe, tokens, labels: pipe.classifier(pipe.tokenizer.decode(tokens)).softmax(1),
    "critic": lambda pipe, tokens, labels: pipe.critic(tokens, labels).sigmoid().mean(1, keepdim=True).expand(-1, 3),
}


@torch.no_grad()
@pytest.mark.parametrize("batch_size", [1, 3, 64])
@pytest.mark.parametrize("judge", JUDGES)
def test_rejection_keeps_the_candidate_that_the_judge_likes_best(pipe, judge, batch_size):
    labels, by = torch.tensor([0, 1, 0]), "critic" if judge == "critic" else "classifier"
    if judge == "somebody else's classifier":
        pipe = TokenCriticPipeline(
            pipe.tokenizer, pipe.generator, pipe.critic, bright_or_dark, class_names=pipe.class_names
        )
    settings = pipe.settings(candidates=4, reject_by=by)
    kept = pipe.sample_tokens(labels, 20, settings, batch_size=batch_size)
    places = []
    for number, label in enumerate(labels.tolist()):
        # Every candidate by itself is an image without rejection.
        seeds = [int(candidate_seeds(torch.tensor([20 + number]), j)) for j in range(4)]
        tried = torch.cat([pipe.sample_tokens(labels[number : number + 1], seed) for seed in seeds])
        scores = JUDGES[judge](pipe, tried, torch.tensor([label] * 4))[:, label]
        places.append(int(scores.argmax()))
        assert kept[number].equal(tried[places[-1]])
    assert places != [0, 0, 0]
    call = {"candidates": 4, "reject_by": by, "output_type": "pt"}
    assert pipe([0, 1, 0], seed=20, **call).equal(pipe.images(kept, "pt"))


def test_one_candidate_is_the_image_without_rejection(pipe):
    assert pipe([0, 1], candidates=1, output_type="pt").equal(pipe([0, 1], output_type="pt"))
    everybody = TokenCriticPipeline(pipe.tokenizer, pipe.generator)
    assert everybody([0], candidates=1, reject_by="critic", output_type="pt").shape == (1, 1, 8, 8)


def test_another_sampler_does_not_inherit_what_was_meant_for_the_default_one(pipe):
    assert pipe.settings(sampler="critic") == replace(pipe.defaults, sampler="critic")
    assert pipe.settings(sampler="confidence") == SamplingSettings("confidence", steps=3)
    assert pipe.settings(sampler="confidence", temperature=0.7).temperature == 0.7
    assert pipe.settings(sampler="critic").selection_noise == 0.3
    assert pipe.settings(sampler="confidence").selection_noise is None
    assert pipe.settings(sampler="confidence", selection_noise=2.0).selection_noise == 2.0
    # Random re-masking stands in for the critic, all else the same.
    assert pipe.settings(sampler="random-remask") == replace(
        pipe.defaults, sampler="random-remask", selection_noise=None
    )
    assert pipe.settings(sampler="random-remask", temperature=0.7).temperature == 0.7
    control = TokenCriticPipeline(**pipe.parts, defaults=pipe.settings(sampler="random-remask"))
    assert control.settings(sampler="critic") == SamplingSettings("critic", steps=3)


def test_refinement_has_settings_of_its_own(pipe):
    refining = pipe.sampling.for_refinement
    assert refining() == replace(pipe.defaults, sampler="critic", steps=9)
    assert refining(sampler="random-remask") == refining().with_random_remasking()
    assert refining(steps=4, temperature=0.5) == replace(pipe.defaults, sampler="critic", steps=4, temperature=0.5)
    later = TokenCriticPipeline(**pipe.parts, defaults=replace(pipe.defaults, critic_window=(0.4, 0.1)))
    assert later.sampling.for_refinement().critic_window == (1, 0)
    assert later.sampling.for_refinement(critic_window=(1, 0.5)).critic_window == (1, 0.5)
    with pytest.raises(InputError, match=r"critic_window is \(0\.4, 0\); expected a start of 1"):
        later.sampling.for_refinement(critic_window=(0.4, 0))


def test_images_in_every_form_become_the_same_tokens(pipe):
    tensors = pipe([0, 1, 2], output_type="pt").mul(255).round().div(255)  # the levels of a file
    arrays = tensors.permute(0, 2, 3, 1).numpy()
    pictures = [Image.fromarray((array[..., 0] * 255).round().astype(np.uint8)) for array in arrays]
    tokens = pipe.tokenizer.encode(tensors)
    for form in (tensors, arrays, (arrays * 255).round().astype(np.uint8), pictures):
        assert pipe.encode(form).equal(tokens)
    assert pipe.encode(tensors, batch_size=2).equal(tokens)
    assert pipe.encode(pictures[1]).equal(tokens[1:2])
    large = pictures[1].resize((16, 16), Image.Resampling.NEAREST)
    wide = Image.new("RGB", (40, 16), "red")
    wide.paste(large, (12, 0))
    assert pipe.encode(wide).equal(tokens[1:2])  # the middle square, halved


def test_refinement_is_the_sampling_functions_on_what_was_encoded(pipe):
    images = pipe([0, 1, 2], seed=5, output_type="pt")
    tokens, labels = pipe.encode(images), torch.tensor([0, 1, 2])
    refined = pipe.sample_tokens(labels, 5, given=Given(tokens))
    loop = {"steps": 9, "temperature": (1.2, 0.8)}
    assert refined.equal(refine(pipe.generator, CriticScorer(pipe.critic, 0.3), tokens, labels, 5, **loop))
    again = pipe.refine(images, [0, "dog", 2], seed=5, output_type="pt", batch_size=2)
    assert again.equal(pipe.tokenizer.decode(refined))
    third = refine(pipe.generator, CriticScorer(pipe.critic, 0.3), tokens, labels, 5, ratio=0.3, **loop)
    assert pipe.sample_tokens(labels, 5, given=Given(tokens, 0.3)).equal(third)
    assert pipe.refine(tokens.numpy().astype(np.uint16), [0, 1, 2], seed=5, output_type="pt").equal(again)


def test_refinement_asks_the_classifier_for_classes_that_are_not_given(pipe):
    tokens = pipe.encode(pipe([0, 1, 2], output_type="pt"))
    said = pipe.classify(tokens, batch_size=2)
    with torch.no_grad():
        assert said.equal(pipe.classifier(pipe.tokenizer.decode(tokens)).argmax(1))
    assert pipe.refine(tokens, output_type="pt").equal(pipe.refine(tokens, said.tolist(), output_type="pt"))
    assert pipe.refine(tokens, 1, output_type="pt").equal(pipe.refine(tokens, [1, 1, 1], output_type="pt"))


def test_editing_leaves_the_rest_alone(pipe):
    tokens = pipe.sample_tokens(torch.tensor([0, 1, 2]))
    region = torch.tensor([True, False, False, True])
    edited = pipe.edit(tokens, region, "owl", seed=3, output_type="pt", batch_size=2)
    loop = {"steps": 3, "temperature": (1.2, 0.8)}
    expected = edit(pipe.generator, CriticScorer(pipe.critic, 0.3), tokens, region, [2, 2, 2], 3, **loop)
    assert edited.equal(pipe.tokenizer.decode(expected))
    assert not edited.equal(pipe.images(tokens, "pt"))
    assert pipe.edit(tokens, region.expand(3, -1).numpy(), [2, 2, 2], seed=3, output_type="pt").equal(edited)
    nothing = torch.zeros(4, dtype=torch.bool)
    assert pipe.edit(tokens, nothing, 2, output_type="pt").equal(pipe.images(tokens, "pt"))


def test_batches_are_what_is_sampled_at_once(pipe):
    labels, region = torch.tensor([0, 1, 2, 1, 0]), torch.tensor([True, False, True, True])
    tokens = pipe.sample_tokens(labels)
    regions = region.expand(5, -1).clone()
    regions[2] = False
    for given in (None, Given(tokens), Given(tokens, region=region), Given(tokens, region=regions)):
        whole = pipe.sample_tokens(labels, 3, pipe.defaults, given)
        batches = list(pipe.token_batches(labels, 3, pipe.defaults, given, batch_size=2))
        assert [len(batch) for batch in batches] == [2, 2, 1]
        assert torch.cat(batches).equal(whole)


def test_choosing_among_candidates_sampled_before_keeps_what_sampling_would(pipe):
    labels, seeds = torch.tensor([0, 1, 2]), torch.tensor([20, 21, 22])
    candidates = [pipe.sample_tokens(labels, candidate_seeds(seeds, j)) for j in range(4)]
    for by in ("classifier", "critic"):
        settings = pipe.settings(candidates=4, reject_by=by)
        assert pipe.choose_tokens(candidates, labels, settings, 2).equal(pipe.sample_tokens(labels, seeds, settings))
    assert pipe.choose_tokens(candidates[:1], labels, settings).equal(candidates[0])


def test_the_critics_scores_are_its_probabilities(pipe):
    tokens, labels = pipe.sample_tokens(torch.tensor([0, 1, 2])), torch.tensor([0, 1, 2])
    with torch.no_grad():
        expected = pipe.critic(tokens, labels).sigmoid()
    torch.testing.assert_close(pipe.critic_scores(tokens, labels, batch_size=2), expected)


def test_on_step_sees_every_step(pipe):
    seen = []
    images = pipe([0, 1], num_inference_steps=4, output_type="pt", on_step=lambda *a: seen.append(a))
    steps = [(made.step.index, made.step.time, int(mask.sum()), scores is not None) for made, scores, mask in seen]
    # Of 4 tokens 4, 3, 2 and 0 stay hidden; the first step hides all again and is skipped.
    assert steps == [(2, 0.75, 6, True), (3, 0.5, 4, True), (4, 0.25, 0, False)]
    assert pipe.images(seen[-1][0].tokens, "pt").equal(images)


def test_a_critic_window_must_contain_a_step(pipe):
    tokens, labels = pipe.sample_tokens(torch.tensor([0])), torch.tensor([0])
    closed, region = pipe.settings(critic_window=(1.0, 0.97)), torch.ones(4, dtype=torch.bool)
    for given in (None, Given(tokens, region=region)):
        for sampler in ("critic", "random-remask"):
            with pytest.raises(InputError, match=r"critic_window is 1 0\.97; it contains none of 3 steps of 4 tokens"):
                pipe.token_batches(labels, 0, replace(closed, sampler=sampler), given)
    assert pipe.sample_tokens(labels, 0, replace(closed, sampler="confidence")).shape == (1, 4)  # has no window
    once = replace(closed, steps=1)  # one step leaves nothing to choose, in any window
    assert pipe.sample_tokens(labels, 0, once).equal(pipe.sample_tokens(labels, 0, pipe.settings(steps=1)))


def test_it_moves_to_another_precision(pipe):
    images = pipe.to(dtype=torch.bfloat16)([0, 1], output_type="pt")
    assert images.dtype == torch.float32
    assert pipe.generator.bias.dtype == torch.bfloat16
    assert images.isfinite().all()


def test_somebody_elses_generator_fits_in(pipe):
    class Foreign(torch.nn.Module):
        mask_id, num_tokens, codebook_size, num_classes = 16, 4, 16, 3

        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(1))

        def forward(self, masked_tokens, labels):
            return 50 * torch.nn.functional.one_hot(labels, 16)[:, None].expand(-1, 4, -1) + self.bias

    foreign = TokenCriticPipeline(pipe.tokenizer, Foreign(), pipe.critic)
    assert foreign([2], output_type="pt").equal(pipe.tokenizer.decode(torch.full((1, 4), 2)))
    with pytest.raises(InputError, match=r"guidance is 2\.0; expected 1 for a generator without null_class"):
        foreign(1, guidance=2.0)

    def plain(masked_tokens, labels):
        return 50 * torch.nn.functional.one_hot(labels, 16)[:, None].expand(-1, 4, -1)

    function = as_generator(plain, num_tokens=4, codebook_size=16, mask_id=16, num_classes=3)
    by_function = TokenCriticPipeline(pipe.tokenizer, function)
    assert by_function(np.int64(2), output_type="pt").equal(foreign(2, output_type="pt"))
    assert foreign.to(dtype=torch.float64).generator.dtype == torch.float64
    with pytest.raises(InputError, match="expected a class of this package to save a pipeline"):
        foreign.save_pretrained("never-written")


def test_a_model_without_classes_samples_refines_and_edits(pipe, tmp_path):
    plain = no_classes(pipe)
    images = plain(num_images_per_label=3, seed=5, output_type="pt")
    assert images.shape == (3, 1, 8, 8)
    assert images[1:2].equal(plain(seed=6, output_type="pt"))
    tokens = plain.sample_tokens(None, range(5, 8))
    assert images.equal(plain.images(tokens, "pt"))
    expected = sample(
        plain.generator, CriticScorer(plain.critic, 0.3), None, range(5, 8), steps=3, temperature=(1.2, 0.8)
    )
    assert tokens.equal(expected)
    assert plain.refine(tokens, seed=2, output_type="pt").shape == images.shape
    region = torch.tensor([True, False, False, True])
    edited = plain.sample_tokens(None, 9, plain.defaults, Given(tokens, region=region))
    assert edited[:, ~region].equal(tokens[:, ~region])
    assert plain.edit(tokens, region, seed=9, output_type="pt").equal(plain.images(edited, "pt"))
    ranked = plain(num_images_per_label=2, candidates=3, reject_by="critic", output_type="pt")
    assert ranked.shape == (2, 1, 8, 8)
    scores = plain.critic_scores(tokens, None, batch_size=2)
    torch.testing.assert_close(scores, plain.critic(tokens, None).sigmoid().detach())
    assert (plain.names(None), plain.relative_costs["generator"]) == ([], 1)
    plain.save_pretrained(tmp_path / "model")
    again = TokenCriticPipeline.from_pretrained(tmp_path / "model")
    assert again(num_images_per_label=3, seed=5, output_type="pt").equal(images)


def test_another_critic_is_sampled_with_by_default(pipe, tmp_path):
    config = InlineCriticConfig(4, 16, 3, 1, SIZES.width, pipe.generator.identity(), 8, 1, 2, 16)
    with_inline = pipe.with_critic(inline_critic=InlineCritic(config).eval())
    assert (with_inline.defaults.sampler, with_inline.critic) == ("inline", pipe.critic)
    other = pipe.generator.start_critic().eval()
    again = with_inline.with_critic(critic=other)
    assert (again.defaults.sampler, again.critic, again.class_names) == ("critic", other, NAMES)
    assert again.inline_critic is with_inline.inline_critic
    with_inline.save_pretrained(tmp_path / "both")
    with_inline.inline_critic.save_pretrained(tmp_path / "alone")
    without_judges(pipe).save_pretrained(tmp_path / "none")
    assert load_critic(tmp_path / "both").keys() == {"critic"}
    assert load_critic(tmp_path / "both/critic").keys() == {"critic"}
    assert load_critic(tmp_path / "alone").keys() == {"inline_critic"}
    assert load_critic("fashion-mnist").keys() == {"critic"}
    for place in (tmp_path, tmp_path / "none", tmp_path / "none/generator"):
        with pytest.raises(
            InputError, match="has no critic; expected a run of a critic, a model with a critic, or the folder of a"
        ):
            load_critic(place)


def test_a_model_with_one_class_needs_no_label(pipe):
    one = no_classes(pipe, num_classes=1)
    one.classifier = None
    images = one(num_images_per_label=2, output_type="pt")
    assert images.equal(one([0, 0], output_type="pt"))
    assert one.refine(images, output_type="pt").equal(one.refine(images, 0, output_type="pt"))


def test_the_tokenizer_of_a_model_or_alone(pipe, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    vqgan = VQGAN(
        VQGANConfig(image_size=8, channels=1, filters=32, multipliers=(1, 1), blocks=1, codebook_size=8, code_width=4)
    )
    vqgan.save_pretrained(tmp_path / "alone")
    assert type(load_part(tmp_path / "model", "tokenizer")) is CompactTokenizer
    assert type(load_part(tmp_path / "alone", "tokenizer")) is VQGAN
    pipe.generator.save_pretrained(tmp_path / "generator")
    with pytest.raises(InputError, match="expected those of a tokenizer"):
        load_part(tmp_path / "generator", "tokenizer")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts | {"format": 2}, "has format 2; this version reads format 1"),
        (lambda facts: facts | {"parts": facts["parts"] | {"critic": "oracle"}}, "critic of kind 'oracle'"),
        (lambda facts: facts | {"parts": facts["parts"] | {"upscaler": "x"}}, "upscaler of kind 'x'"),
        (lambda facts: facts | {"parts": {"tokenizer": "compact"}}, "has no generator"),
        (lambda facts: facts | {"sampling": {"steps": 0}}, "sampling: steps is 0"),
        (lambda facts: facts | {"sampling": {"stepz": 1}}, "sampling: .*stepz"),
        (lambda facts: facts | {"sampling": {"temperature": [1, 2, 3]}}, "sampling: temperature is"),
        (lambda facts: facts | {"sampling": {"noise_kind": "normal"}}, "sampling: noise_kind is 'normal'"),
        (lambda facts: facts | {"sampling": {"critic_window": [0.2, 0.3]}}, "sampling: critic_window is"),
        (lambda facts: facts | {"sampling": {"selection_noise": -1}}, "sampling: selection_noise is -1"),
        (lambda facts: facts | {"class_names": None}, "has class_names None"),
        (lambda facts: facts | {"parts": {"tokenizer": []}}, "has parts"),
        (lambda facts: facts | {"class_names": ["one"]}, "class_names has 1 entries for 3 classes"),
    ],
)
def test_a_damaged_folder_is_named(pipe, tmp_path, change, message):
    pipe.save_pretrained(tmp_path)
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(InputError, match=message):
        TokenCriticPipeline.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pipe: pipe("bird"), "class_labels holds 'bird'; the model's class names are Cat, dog, owl"),
        (lambda pipe: pipe(3), "class_labels holds 3; expected 0 to 2"),
        (lambda pipe: pipe([1.7]), "class_labels holds 1.7"),
        (lambda pipe: pipe([]), "class_labels is empty"),
        (lambda pipe: pipe(), "class_labels is missing; the model has 3 classes"),
        (lambda pipe: pipe.sample_tokens(None, [0]), "labels is None and the model has 3 classes"),
        (lambda pipe: no_classes(pipe)([1]), r"class_labels is \[1\], and the model has no classes; leave it out"),
        (lambda pipe: no_classes(pipe).refine(GREY, 1), "class_labels is 1, and the model has no classes"),
        (lambda pipe: no_classes(pipe).sample_tokens(None, 3), "seeds is one integer; give one seed per image"),
        (
            lambda pipe: no_classes(pipe).sample_tokens(torch.tensor([0])),
            "labels are given and the model has no classes",
        ),
        (lambda pipe: no_classes(pipe)(candidates=2), "reject_by is classifier, which needs classes"),
        (lambda pipe: no_classes(pipe)(guidance=2.0), "guidance is 2.0; expected 1 for a generator without null_class"),
        (lambda pipe: TokenCriticPipeline(pipe.tokenizer, lambda *_: None), "generator has no attribute num_tokens"),
        (lambda pipe: TokenCriticPipeline(object(), pipe.generator), "tokenizer, a object, has no encode"),
        (lambda pipe: pipe("3"), "class_labels holds 3"),
        (lambda pipe: pipe(-1), "class_labels holds -1"),
        (lambda pipe: pipe(0, 0), "num_images_per_label is 0"),
        (
            lambda pipe: pipe(0, stepz=3),
            "unknown setting 'stepz'; choose from candidates, critic_window, early_noise, guidance",
        ),
        (lambda pipe: pipe(0, output_type="jpg"), "output_type is 'jpg'"),
        (lambda pipe: pipe(0, num_inference_steps=0), "steps is 0"),
        (lambda pipe: pipe(0, sampler="best"), "sampler is 'best'"),
        (lambda pipe: pipe(0, batch_size=0), "batch_size is 0"),
        (lambda pipe: pipe(0, candidates=0), "candidates is 0"),
        (lambda pipe: pipe(0, candidates=2, reject_by="taste"), "reject_by is 'taste'"),
        (lambda pipe: without_judges(pipe)(0, candidates=2), "reject_by is classifier, but the model has none"),
        (lambda pipe: without_judges(pipe)(0, candidates=2, reject_by="critic"), "critic, but the model has none"),
        (lambda pipe: pipe.sample_tokens(torch.zeros(0, dtype=torch.int64)), "there are 0 labels"),
        (lambda pipe: without_judges(pipe).refine(GREY, 0), "has no critic for refinement"),
        (lambda pipe: pipe.refine(GREY, 0, sampler="confidence"), "sampler is confidence"),
        (lambda pipe: pipe.refine(GREY, 0, ratio=0.0), "ratio is 0.0"),
        (lambda pipe: pipe.refine(GREY, [0, 1]), "class_labels has 2 entries for 1 images"),
        (lambda pipe: without_classifier(pipe).refine(GREY), "no classes are given and the model has no classifier"),
        (lambda pipe: pipe.refine(torch.zeros(1, 5, dtype=torch.int64), 0), r"tokens has shape \(1, 5\)"),
        (lambda pipe: pipe.refine(torch.zeros(1, 4), 0), "tokens is float32; expected integers"),
        (lambda pipe: pipe.encode([]), "images is a list; expected a picture or a list of them"),
        (lambda pipe: pipe.encode("cat.png"), "images is a str"),
        (lambda pipe: pipe.encode(torch.zeros(1, 1, 9, 9)), r"images has shape \(1, 1, 9, 9\)"),
        (lambda pipe: pipe.encode(torch.full((1, 1, 8, 8), torch.nan)), "images holds values from nan"),
        (lambda pipe: pipe.encode(np.zeros((8, 8), np.uint8)), r"images is a ndarray uint8 \(8, 8\)"),
        (lambda pipe: pipe.encode(Image.new("RGBA", (8, 8))), "a picture in mode RGBA; convert it to L or RGB"),
        (lambda pipe: pipe.encode(GREY, 0), "batch_size is 0"),
        (lambda pipe: pipe.edit(GREY, torch.ones(5, dtype=torch.bool), 0), "region is bool of shape"),
        (lambda pipe: pipe(0, critic_window=(1, 0.97)), "critic_window is 1 0.97; it contains none of 3 steps"),
        (lambda pipe: pipe.edit(GREY, torch.ones(4), 0), "region is float32"),
        (
            lambda pipe: TokenCriticPipeline(make_tokenizer(image_size=12), pipe.generator),
            "num_tokens is 4 but the tokenizer's is 9",
        ),
        (lambda pipe: TokenCriticPipeline(make_tokenizer(codebook_size=8), pipe.generator), "codebook_size is 16 but"),
    ],
)
def test_bad_input_is_named(pipe, call, message):
    with pytest.raises(InputError, match=message):
        call(pipe)
