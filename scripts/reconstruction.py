"""Evaluate the reconstructions of a tokenizer: PSNR, codebook perplexity and reconstruction FID.

    python scripts/reconstruction.py TOKENIZER DATA [--num 2500] [--inception FILE] [--picture FILE]

The reconstruction FID is the floor of every generation FID. It compares `num` evenly spaced test images with their own
reconstructions. Inception takes about 0.1 s per image on two CPU cores, for originals and for reconstructions.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from tokencritic.data.sources import open_source
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.evaluation.features import InceptionFeatures
from tokencritic.evaluation.metrics import fid, fit_gaussian
from tokencritic.image_forms import to_pil
from tokencritic.pictures.grids import image_grid, save
from tokencritic.pipeline_folder import load_part
from tokencritic.tokenizers.quantizer import code_counts, perplexity


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a tokenizer or model folder")
    parser.add_argument("data", help="images with a test split")
    parser.add_argument("--num", type=int, default=2500)
    parser.add_argument(
        "--inception", help="weights of the FID Inception; by default those of an installed package or of the cache"
    )
    parser.add_argument(
        "--picture", type=Path, help="write a PNG of two images of each class above their reconstructions"
    )
    arguments = parser.parse_args()
    tokenizer, source = load_part(arguments.tokenizer, "tokenizer"), open_source(arguments.data, "test")
    indices = np.linspace(0, len(source) - 1, arguments.num).astype(int)
    crop = Preprocess(tokenizer.image_size, tokenizer.channels)
    examples = [source[int(index)] for index in indices]
    images = to_float(crop.batch([example[0] for example in examples if example], indices))
    labels = np.array([example[1] for example in examples if example])
    tokens = torch.cat([tokenizer.encode(part) for part in images.split(256)])
    again = torch.cat([tokenizer.decode(part) for part in tokens.split(256)])
    error = (again - images).square().mean().item()
    used = perplexity(code_counts(tokens, tokenizer.codebook_size))
    print(f"{len(images)} test images, PSNR {-10 * np.log10(error):.2f} dB, codebook perplexity {used:.0f}", flush=True)
    if arguments.picture:
        first = [i for label in range(len(source.class_names)) for i in np.flatnonzero(labels == label)[:2]]
        rows = [to_pil(x) for side in (images, again) for x in side[first].permute(0, 2, 3, 1).numpy()]
        save(image_grid(rows, columns=len(first)), arguments.picture)
        print(f"wrote {arguments.picture}", flush=True)
    inception = InceptionFeatures.load(arguments.inception)
    real, fake = (fit_gaussian(inception(part)["features"] for part in side.split(50)) for side in (images, again))
    with_what = f"{inception.name}, resize {inception.resize}, {len(images)} images"
    print(f"reconstruction FID {fid(real, fake):.2f} ({with_what})")


if __name__ == "__main__":
    main()
