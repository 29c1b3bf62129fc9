"""Official MaskGIT checkpoints: parity with the official code, other sizes, and what does not fit."""

from dataclasses import dataclass
from pathlib import Path

import msgpack
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.interop.family import Imported, Sources
from tokencritic.interop.maskgit import import_generator, import_tokenizer, read
from tokencritic.sampling.settings import SamplingSettings

# A small random checkpoint of each model, with inputs and outputs computed by the official code.
FOLDER = Path(__file__).parent / "fixtures" / "maskgit-official"
Arrays = dict[str, Tensor]


def write_arrays(path: Path, arrays: Arrays) -> Path:
    """A flax checkpoint: dotted names become nested maps under `params`."""
    tree: dict = {}
    for name, array in arrays.items():
        *folders, last = name.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        content = msgpack.packb((tuple(array.shape), "float32", array.numpy().tobytes()))
        place[last] = msgpack.ExtType(1, content)
    path.write_bytes(msgpack.packb({"params": tree}))
    return path


def read_pair(generator_file: Path, tokenizer_file: Path) -> Imported:
    return read(Sources(generator_file, tokenizer_file))


@pytest.fixture(scope="module")
def expected() -> Arrays:
    with np.load(FOLDER / "expected.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


def test_logits_equal_the_official_code(expected: Arrays) -> None:
    generator = import_generator(FOLDER / "maskgit_checkpoint", codebook_size=96)
    assert (generator.num_tokens, generator.num_classes, generator.config.heads) == (16, 10, 4)
    masked_tokens = expected["tokens"].masked_fill(expected["mask"], generator.mask_id)
    with torch.no_grad():
        logits = generator(masked_tokens, expected["labels"])
    torch.testing.assert_close(logits, expected["logits"], atol=1e-4, rtol=0)


def test_tokens_and_images_equal_the_official_code(expected: Arrays) -> None:
    found = read_pair(FOLDER / "maskgit_checkpoint", FOLDER / "tokenizer_checkpoint")
    generator, tokenizer = found.generator, found.tokenizer
    assert found.defaults == SamplingSettings(sampler="confidence", schedule="maskgit", steps=12, selection_noise=4.5)
    assert generator.codebook_size == tokenizer.codebook_size == 96
    assert (tokenizer.image_size, tokenizer.grid) == (16, (4, 4))
    tokens = tokenizer.encode(expected["images"].permute(0, 3, 1, 2))
    assert torch.equal(tokens, expected["encoded"].flatten(1).long())
    with torch.no_grad():
        images = tokenizer.to_images(tokenizer.quantizer.look_up(expected["decode_tokens"].flatten(1), tokenizer.grid))
    torch.testing.assert_close(images.permute(0, 2, 3, 1), expected["decoded"], atol=1e-4, rtol=0)
    decoded = tokenizer.decode(expected["decode_tokens"].flatten(1))
    torch.testing.assert_close(decoded.permute(0, 2, 3, 1), expected["decoded"].clamp(0, 1), atol=1e-4, rtol=0)


@dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int
    mlp_width: int
    codes: int
    classes: int
    tokens: int


def random_generator(sizes: Sizes, seed: int = 0) -> Arrays:
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return 0.2 * torch.randn(*shape, generator=rng)

    width, vocabulary = sizes.width, sizes.codes + sizes.classes + 1
    split = (sizes.heads, width // sizes.heads)
    shapes: dict[str, tuple[int, ...]] = {
        "Embed_0.word_embeddings.embedding": (vocabulary, width),
        "Embed_0.position_embeddings.embedding": (sizes.tokens + 1, width),
        "MlmLayer_0.mlm_dense.kernel": (width, width),
        "MlmLayer_0.mlm_dense.bias": (width,),
        "MlmLayer_0.mlm_bias.bias": (vocabulary,),
    }
    norms = ["Embed_0.embeddings_ln", "MlmLayer_0.mlm_ln"]
    for i in range(sizes.layers):
        layer = f"TransformerLayer_{i}"
        for name in ("query", "key", "value"):
            shapes[f"{layer}.Attention_0.self_attention.{name}.kernel"] = (width, *split)
            shapes[f"{layer}.Attention_0.self_attention.{name}.bias"] = split
        shapes[f"{layer}.Attention_0.self_attention.out.kernel"] = (*split, width)
        shapes[f"{layer}.Attention_0.self_attention.out.bias"] = (width,)
        shapes[f"{layer}.Mlp_0.intermediate_output.kernel"] = (width, sizes.mlp_width)
        shapes[f"{layer}.Mlp_0.intermediate_output.bias"] = (sizes.mlp_width,)
        shapes[f"{layer}.Mlp_0.layer_output.kernel"] = (sizes.mlp_width, width)
        shapes[f"{layer}.Mlp_0.layer_output.bias"] = (width,)
        norms += [f"{layer}.Attention_0.attention_output_ln", f"{layer}.Mlp_0.layer_output_ln"]
    for norm in norms:
        shapes |= {f"{norm}.scale": (width,), f"{norm}.bias": (width,)}
    return {name: draw(*shape) for name, shape in shapes.items()}


def reference_logits(arrays: Arrays, sizes: Sizes, masked_tokens: Tensor, labels: Tensor) -> Tensor:
    """The transformer as MaskGIT describes it, head by head, from the arrays as they are in the file."""

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], arrays[f"{name}.scale"], arrays[f"{name}.bias"], 1e-12)

    def dense(x: Tensor, name: str) -> Tensor:
        return x @ arrays[f"{name}.kernel"] + arrays[f"{name}.bias"]

    words = arrays["Embed_0.word_embeddings.embedding"]
    ids = torch.cat([labels[:, None] + sizes.codes, masked_tokens], 1)
    x = norm(words[ids] + arrays["Embed_0.position_embeddings.embedding"], "Embed_0.embeddings_ln")
    for i in range(sizes.layers):
        name = f"TransformerLayer_{i}.Attention_0"
        q, k, v = (
            torch.einsum("bsd,dhe->bhse", x, arrays[f"{name}.self_attention.{part}.kernel"])
            + arrays[f"{name}.self_attention.{part}.bias"][:, None]
            for part in ("query", "key", "value")
        )
        weights = (q @ k.transpose(2, 3) / (sizes.width / sizes.heads) ** 0.5).softmax(-1)
        out = torch.einsum("bhse,hed->bsd", weights @ v, arrays[f"{name}.self_attention.out.kernel"])
        x = norm(x + out + arrays[f"{name}.self_attention.out.bias"], f"{name}.attention_output_ln")
        name = f"TransformerLayer_{i}.Mlp_0"
        y = F.gelu(dense(x, f"{name}.intermediate_output"), approximate="tanh")
        x = norm(x + dense(y, f"{name}.layer_output"), f"{name}.layer_output_ln")
    x = norm(F.gelu(dense(x, "MlmLayer_0.mlm_dense"), approximate="tanh"), "MlmLayer_0.mlm_ln")
    return (x @ words.T + arrays["MlmLayer_0.mlm_bias.bias"])[:, 1:, : sizes.codes]


@pytest.mark.parametrize(
    "sizes", [Sizes(1, 24, 3, 40, 50, 7, 9), Sizes(2, 32, 1, 16, 8, 1, 4), Sizes(11, 8, 2, 8, 5, 3, 25)]
)
def test_a_generator_of_any_size_computes_what_its_arrays_say(tmp_path: Path, sizes: Sizes) -> None:
    arrays = random_generator(sizes)
    generator = import_generator(write_arrays(tmp_path / "g", arrays), codebook_size=sizes.codes)
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, sizes.codes, (3, sizes.tokens), generator=rng)
    tokens[torch.rand(tokens.shape, generator=rng) < 0.5] = generator.mask_id
    labels = torch.randint(0, sizes.classes, (3,), generator=rng)
    with torch.no_grad():
        logits = generator(tokens, labels)
    torch.testing.assert_close(logits, reference_logits(arrays, sizes, tokens, labels), atol=1e-4, rtol=1e-4)


def random_tokenizer(multipliers: tuple[int, ...], blocks: int, codes: int, code_width: int, channels: int) -> Arrays:
    rng = torch.Generator().manual_seed(0)
    arrays: Arrays = {"quantizer.codebook": torch.randn(codes, code_width, generator=rng)}

    def convolution(name: str, size: int, old: int, new: int, bias: bool) -> None:
        arrays[f"{name}.kernel"] = torch.randn(size, size, old, new, generator=rng) / (size * old**0.5)
        if bias:
            arrays[f"{name}.bias"] = torch.randn(new, generator=rng)

    def norm(name: str, width: int) -> None:
        arrays[f"{name}.scale"] = 1 + 0.3 * torch.randn(width, generator=rng)
        arrays[f"{name}.bias"] = 0.3 * torch.randn(width, generator=rng)

    def all_blocks(part: str, width: int, new_widths: list[int]) -> None:
        for i, new in enumerate(new for new in new_widths for _ in range(blocks)):
            norm(f"{part}.ResBlock_{i}.GroupNorm_0", width)
            convolution(f"{part}.ResBlock_{i}.Conv_0", 3, width, new, False)
            norm(f"{part}.ResBlock_{i}.GroupNorm_1", new)
            convolution(f"{part}.ResBlock_{i}.Conv_1", 3, new, new, False)
            if width != new:
                convolution(f"{part}.ResBlock_{i}.Conv_2", 1, new, new, False)
            width = new

    widths = [32 * multiplier for multiplier in multipliers]
    convolution("encoder.Conv_0", 3, channels, 32, False)
    all_blocks("encoder", 32, [*widths, widths[-1]])
    norm("encoder.GroupNorm_0", widths[-1])
    convolution("encoder.Conv_1", 1, widths[-1], code_width, True)
    convolution("decoder.Conv_0", 3, code_width, widths[-1], True)
    all_blocks("decoder", widths[-1], [widths[-1], *widths[::-1]])
    for i, width in enumerate(widths[:0:-1]):
        convolution(f"decoder.Conv_{i + 1}", 3, width, width, True)
    norm("decoder.GroupNorm_0", widths[0])
    convolution(f"decoder.Conv_{len(widths)}", 3, widths[0], channels, True)
    return arrays


class ReferenceVQGAN:
    """MaskGIT's VQGAN from the arrays as they are in the file, on NHWC images."""

    def __init__(self, arrays: Arrays, levels: int, blocks: int) -> None:
        self.arrays, self.levels, self.blocks = arrays, levels, blocks

    def convolve(self, x: Tensor, name: str) -> Tensor:
        kernel = self.arrays[f"{name}.kernel"]
        size = kernel.shape[0]
        padded = F.pad(x, (0, 0, *[size // 2] * 4))
        h, w = x.shape[1:3]
        taps = [padded[:, i : i + h, j : j + w] @ kernel[i, j] for i in range(size) for j in range(size)]
        return sum(taps) + self.arrays.get(f"{name}.bias", torch.zeros(()))

    def normalized_swish(self, x: Tensor, name: str) -> Tensor:
        groups = x.unflatten(3, (32, -1))
        mean = groups.mean((1, 2, 4), keepdim=True)
        variance = (groups - mean).square().mean((1, 2, 4), keepdim=True)
        x = ((groups - mean) / (variance + 1e-6).sqrt()).flatten(3)
        x = x * self.arrays[f"{name}.scale"] + self.arrays[f"{name}.bias"]
        return x / (1 + (-x).exp())

    def block(self, x: Tensor, name: str) -> Tensor:
        y = self.convolve(self.normalized_swish(x, f"{name}.GroupNorm_0"), f"{name}.Conv_0")
        y = self.convolve(self.normalized_swish(y, f"{name}.GroupNorm_1"), f"{name}.Conv_1")
        return y + (self.convolve(y, f"{name}.Conv_2") if f"{name}.Conv_2.kernel" in self.arrays else x)

    def encode(self, x: Tensor) -> Tensor:
        x = self.convolve(x, "encoder.Conv_0")
        number = 0
        for level in range(self.levels + 1):
            for _ in range(self.blocks):
                x = self.block(x, f"encoder.ResBlock_{number}")
                number += 1
            if level < self.levels - 1:
                x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).mean((2, 4))
        x = self.convolve(self.normalized_swish(x, "encoder.GroupNorm_0"), "encoder.Conv_1")
        codes = self.arrays["quantizer.codebook"]
        return (x[..., None, :] - codes).square().sum(-1).argmin(-1)

    def decode(self, tokens: Tensor) -> Tensor:
        x = self.convolve(self.arrays["quantizer.codebook"][tokens], "decoder.Conv_0")
        number = 0
        for level in range(self.levels + 1):
            for _ in range(self.blocks):
                x = self.block(x, f"decoder.ResBlock_{number}")
                number += 1
            if 0 < level < self.levels:
                x = x.repeat_interleave(2, 1).repeat_interleave(2, 2)
                x = self.convolve(x, f"decoder.Conv_{level}")
        x = self.normalized_swish(x, "decoder.GroupNorm_0")
        return self.convolve(x, f"decoder.Conv_{self.levels}")


@pytest.mark.parametrize(
    ("multipliers", "blocks", "codes", "code_width", "channels", "side"),
    [((1, 1, 2), 2, 96, 16, 3, 4), ((2, 1), 1, 20, 5, 1, 3), ((1, 3, 2, 4), 3, 7, 8, 3, 2), ((1,), 1, 30, 4, 3, 6)],
)
def test_a_tokenizer_of_any_size_computes_what_its_arrays_say(
    tmp_path: Path, multipliers: tuple[int, ...], blocks: int, codes: int, code_width: int, channels: int, side: int
) -> None:
    arrays = random_tokenizer(multipliers, blocks, codes, code_width, channels)
    size = side * 2 ** (len(multipliers) - 1)
    tokenizer = import_tokenizer(write_arrays(tmp_path / "t", arrays), image_size=size)
    assert tokenizer.config.multipliers == multipliers
    assert (tokenizer.grid, tokenizer.codebook_size, tokenizer.channels) == ((side, side), codes, channels)
    reference = ReferenceVQGAN(arrays, len(multipliers), blocks)
    rng = torch.Generator().manual_seed(3)
    images = torch.rand(2, channels, size, size, generator=rng)
    assert torch.equal(tokenizer.encode(images), reference.encode(images.permute(0, 2, 3, 1)).flatten(1))
    tokens = torch.randint(0, codes, (2, side * side), generator=rng)
    with torch.no_grad():
        made = tokenizer.to_images(tokenizer.quantizer.look_up(tokens, tokenizer.grid))
    wanted = reference.decode(tokens.view(2, side, side)).permute(0, 3, 1, 2)
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=1e-4)


def test_a_pair_tells_each_other_their_sizes_and_survives_saving(tmp_path: Path) -> None:
    sizes = Sizes(1, 16, 2, 16, 20, 4, 9)
    generator_file = write_arrays(tmp_path / "g", random_generator(sizes))
    tokenizer_file = write_arrays(tmp_path / "t", random_tokenizer((1, 2), 1, 20, 8, 3))
    found = read_pair(generator_file, tokenizer_file)
    generator, tokenizer = found.generator, found.tokenizer
    assert (generator.codebook_size, generator.num_classes, tokenizer.image_size) == (20, 4, 6)
    tokenizer.save_pretrained(tmp_path / "saved")
    again = type(tokenizer).from_pretrained(tmp_path / "saved")
    tokens = torch.randint(0, 20, (1, 9), generator=torch.Generator().manual_seed(0))
    assert again.config == tokenizer.config
    assert torch.equal(again.decode(tokens), tokenizer.decode(tokens))


def test_codes_leave_room_for_a_class_and_the_mask(tmp_path: Path) -> None:
    small = write_arrays(tmp_path / "s", random_generator(Sizes(1, 4, 2, 4, 20, 3, 4)))
    with pytest.raises(InputError, match=r"codebook_size is 23; expected 1 to 22, .*24 words"):
        import_generator(small, codebook_size=23)
    assert import_generator(small, codebook_size=22).num_classes == 1


def test_a_lone_tokenizer_is_for_256_pixels(tmp_path: Path) -> None:
    file = write_arrays(tmp_path / "t", random_tokenizer((1, 2), 1, 20, 8, 3))
    assert import_tokenizer(file).image_size == 256
    with pytest.raises(InputError, match="image_size is 7"):
        import_tokenizer(file, image_size=7)


def test_arrays_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    arrays = random_tokenizer((1, 2), 1, 20, 8, 3)
    del arrays["encoder.GroupNorm_0.bias"]
    arrays["decoder.Conv_0.kernel"] = torch.zeros(3, 3, 9, 64)
    arrays["encoder.Dense_0.kernel"] = torch.zeros(2, 2)
    with pytest.raises(InputError) as error:
        import_tokenizer(write_arrays(tmp_path / "t", arrays), image_size=8)
    text = str(error.value)
    assert "missing: encoder.GroupNorm_0.bias" in text
    assert "unexpected: encoder.Dense_0.kernel" in text
    assert "decoder.Conv_0.kernel (3, 3, 9, 64) instead of (3, 3, 8, 64)" in text
    assert "\n" not in text


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    arrays = random_generator(Sizes(3, 8, 2, 8, 6, 3, 4))
    gone = {name: value for name, value in arrays.items() if not name.startswith("TransformerLayer_1.")}
    with pytest.raises(
        InputError, match=r"missing: TransformerLayer_1\.[^;]* and 13 more; unexpected: TransformerLayer_2"
    ):
        import_generator(write_arrays(tmp_path / "g", gone), codebook_size=6)


def test_a_file_of_the_other_kind_is_named(tmp_path: Path) -> None:
    generator_file = write_arrays(tmp_path / "g", random_generator(Sizes(1, 8, 2, 8, 6, 3, 4)))
    tokenizer_file = write_arrays(tmp_path / "t", random_tokenizer((1, 2), 1, 20, 8, 3))
    with pytest.raises(InputError, match=r"it has no array quantizer\.codebook"):
        import_tokenizer(generator_file)
    with pytest.raises(InputError, match=r"it has no array Embed_0"):
        import_generator(tokenizer_file, codebook_size=6)


def test_tokens_that_make_no_square_are_refused(tmp_path: Path) -> None:
    generator_file = write_arrays(tmp_path / "g", random_generator(Sizes(1, 8, 2, 8, 20, 3, 5)))
    tokenizer_file = write_arrays(tmp_path / "t", random_tokenizer((1, 2), 1, 20, 8, 3))
    with pytest.raises(InputError, match="5 tokens per image; expected a square"):
        read_pair(generator_file, tokenizer_file)


def test_heads_that_are_not_those_of_the_file_are_refused() -> None:
    files = FOLDER / "maskgit_checkpoint", FOLDER / "tokenizer_checkpoint"
    assert read(Sources(*files, heads=4)).generator.config.heads == 4
    with pytest.raises(InputError, match=r"--heads is 8; .*maskgit_checkpoint has 4; omit the flag"):
        read(Sources(*files, heads=8))
