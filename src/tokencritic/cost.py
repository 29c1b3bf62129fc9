"""The cost of networks: floating-point operations, counted by torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tokencritic.contracts import FeatureCritic, ImageClassifier, ImageTokenizer, MaskedGenerator, TokenCritic


def count_flops(call: Callable[[], Any]) -> int:
    """Count the floating-point operations of matrix products, convolutions and attention in a call."""
    # torch does not count fused attention on a CPU, so attention runs as plain matrix products.
    with torch.no_grad(), FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        call()
    return counter.get_total_flops()


@torch.no_grad()
def relative_costs(
    tokenizer: ImageTokenizer,
    generator: MaskedGenerator,
    critic: TokenCritic | None,
    inline_critic: FeatureCritic | None,
    classifier: ImageClassifier | None,
) -> dict[str, float]:
    """Return the FLOPs of one evaluation of each network, by name, in units of one generator evaluation.

    The tokenizer is not included; it provides the input of the classifier. All costs are 1 if no FLOPs can be counted
    for the generator.
    """
    tokens = torch.zeros(1, tokenizer.num_tokens, dtype=torch.int64, device=generator.device)
    labels = tokens[:, 0] if generator.num_classes else None
    flops = {"generator": count_flops(lambda: generator(tokens, labels))}
    if critic is not None:
        masks = [tokens.bool()] if critic.reads_mask else []
        flops["critic"] = count_flops(lambda: critic(tokens, labels, *masks))
    if inline_critic is not None:
        features = generator.features(tokens, labels)
        flops["inline_critic"] = count_flops(lambda: inline_critic(features))
    if classifier is not None:
        images = tokenizer.decode(tokens)
        flops["classifier"] = count_flops(lambda: classifier(images))
    unit = flops["generator"]
    return {name: count / unit if unit else 1.0 for name, count in flops.items()}
