"""Time the decoding of one 256 x 256 image by the paper's tokenizer, relative to its convolutions alone.

The convolutions run in the same process on inputs of the same shapes and memory format. The ratio shows the cost of
normalisation, activation, residual sums, upsampling and codebook lookup. The goal is at most 1.3.
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.tokenizers.vqgan import VQGAN

REPEATS = 7


def median_times(*calls: Callable[[], object]) -> list[float]:
    """Return the median seconds of each call after a warm-up. Calls alternate, so that other load affects all alike."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(REPEATS + 1):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def convolutions(tokenizer: VQGAN, tokens: Tensor) -> list[tuple[nn.Conv2d, Tensor]]:
    """Return each convolution of one decoding with its input."""
    seen: list[tuple[nn.Conv2d, Tensor]] = []

    def note(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        seen.append((layer, given[0].clone()))  # cloned, because activations are overwritten without gradients

    layers = [layer for layer in tokenizer.decoder.modules() if isinstance(layer, nn.Conv2d)]
    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    tokenizer.decode(tokens)
    for handle in handles:
        handle.remove()
    return seen


def run_bare(calls: list[tuple[nn.Conv2d, Tensor]]) -> None:
    for layer, given in calls:
        F.conv2d(given, layer.weight, layer.bias, layer.stride, layer.padding)  # pyright: ignore[reportArgumentType]


def flops(layer: nn.Conv2d, given: Tensor) -> int:
    """Return the FLOPs of a convolution with stride 1 and same padding: two for each weight and position."""
    return 2 * layer.weight.numel() * given.shape[0] * given.shape[2] * given.shape[3]


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    tokenizer = VQGAN().eval()
    tokens = torch.randint(0, tokenizer.codebook_size, (1, tokenizer.num_tokens))
    calls = convolutions(tokenizer, tokens)
    work = sum(flops(*call) for call in calls)
    decode, bare = median_times(lambda: tokenizer.decode(tokens), lambda: run_bare(calls))
    print(
        f"threads {torch.get_num_threads()}, one 256 x 256 image, {work / 1e9:.1f} GFLOP in {len(calls)} convolutions"
    )
    print(f"decode       {decode:.3f} s  {work / decode / 1e9:.0f} GFLOP/s")
    print(f"bare conv2d  {bare:.3f} s  {work / bare / 1e9:.0f} GFLOP/s")
    print(f"ratio        {decode / bare:.2f}  (goal: at most 1.3)")


if __name__ == "__main__":
    main()
