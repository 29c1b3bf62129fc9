"""`token-critic doctor`: print versions, devices and caches, and try what a GPU run needs."""

import os
import platform
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from tokencritic import __version__
from tokencritic.cli.arguments import add_device, make_parser, parse
from tokencritic.files import reason_of

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "numpy", "safetensors", "huggingface-hub", "pillow", "starlette", "uvicorn", "tensorboard")


def main(arguments: list[str]) -> None:
    parser = make_parser("doctor", "Print versions, devices and caches, and try what a GPU run needs.", "[OPTIONS]")
    add_device(parser)
    given = parse(parser, arguments)

    import torch

    from tokencritic.devices import choose_device, describe_device

    devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    devices += ["mps", "cpu"] if torch.backends.mps.is_available() else ["cpu"]
    device = torch.device(choose_device(given.device))
    facts = {
        "token-critic": __version__,
        "python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        **{name: _version(name) for name in _PACKAGES},
        "CUDA of torch": torch.version.cuda or "none",
        "devices": "; ".join(map(describe_device, devices)),
        "device of auto": choose_device(),
        "free memory": _free_memory(),
        "threads": str(torch.get_num_threads()),
        "bfloat16": _bfloat16(device),
        "fused attention": _fused_attention(device),
        "compile": _compile(device),
        **{name: str(folder) for name, folder in _caches().items()},
    }
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:<{width}}  {fact}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _free_memory() -> str:
    try:
        page, free, total = map(os.sysconf, ("SC_PAGE_SIZE", "SC_AVPHYS_PAGES", "SC_PHYS_PAGES"))
    except (AttributeError, ValueError):  # on Windows and macOS
        return "unknown"
    return f"{page * free / 2**30:.1f} of {page * total / 2**30:.1f} GiB of the host's"


def _bfloat16(device: "torch.device") -> str:
    """Return whether a matrix product in bfloat16 works on the device, as text."""
    import torch

    try:
        ones = torch.ones(8, 8, device=device, dtype=torch.bfloat16)
        right = (ones @ ones).float().eq(8).all().item()
    except RuntimeError as error:
        return f"not usable: {reason_of(error)}"
    return f"usable on {device}" if right else f"wrong results on {device}"


def _fused_attention(device: "torch.device") -> str:
    """Return the names of the fused attention kernels that run on the device in bfloat16, for heads of width 64."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    names = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
    names["cudnn"] = SDPBackend.CUDNN_ATTENTION
    vectors, usable = torch.ones(1, 2, 64, 64, device=device, dtype=torch.bfloat16), []
    for name, backend in names.items():
        try:
            with warnings.catch_warnings(), sdpa_kernel(backend):
                warnings.simplefilter("ignore")
                scaled_dot_product_attention(vectors, vectors, vectors)
            usable.append(name)
        except RuntimeError:
            continue
    return f"{', '.join(usable)} on {device}" if usable else f"none on {device}: attention is slow and needs memory"


def _compile(device: "torch.device") -> str:
    """Return whether torch.compile makes a kernel that works on the device, as text."""
    import torch

    try:
        doubled = torch.compile(lambda values: values * 2 + 1)(torch.ones(4, device=device))
        right = doubled.eq(3).all().item()
    except Exception as error:
        return f"not usable: {reason_of(error)}"
    return f"usable on {device}" if right else f"wrong results on {device}"


def _caches() -> dict[str, Path]:
    """Return the folders of cached files, by their content."""
    import huggingface_hub.constants as hub
    import torch
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    from tokencritic.evaluation.cache import cache_folder

    compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())
    places = {"measurements": cache_folder(), "models of the Hub": hub.HF_HUB_CACHE}
    places |= {"weights of torch": torch.hub.get_dir(), "compiled kernels": compiled}
    return {f"cache: {name}": Path(place) for name, place in places.items()}
