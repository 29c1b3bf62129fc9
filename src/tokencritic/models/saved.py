"""Models as `config.json` and `model.safetensors` in a folder, on disk or on the Hub. Nothing is unpickled."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
from huggingface_hub import PyTorchModelHubMixin, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tokencritic.contracts import Part
from tokencritic.errors import InputError, check_at_most, check_types
from tokencritic.files import read_json, reason_of, write_atomically
from tokencritic.fingerprints import with_weights
from tokencritic.foreign_weights import read_safetensors
from tokencritic.pretrained import check_name, place_of

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
_LISTED = 3  # names in an error message
_REPEATED = ("layers", "blocks")  # fields, or ends of fields, that count layers with tensors of their own


class SavedModel(nn.Module, Part, PyTorchModelHubMixin, license="apache-2.0", library_name="token-critic"):
    """A module that is built from a frozen dataclass, `Config`, and can be saved, loaded and pushed to the Hub."""

    Config: type[Any]

    def __init__(self, config: Any) -> None:
        check_at_most(**vars(config))  # before any layer is made
        super().__init__()
        self.config = config

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        return (self,)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the config and all weights."""
        digest = hashlib.sha256(json.dumps(dataclasses.asdict(self.config), sort_keys=True).encode())
        return with_weights(digest, self)

    def save_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, save_directory: str | Path, *, config: Any = None, model_card_kwargs: Any = None
    ) -> None:
        """Write the model folder. The other arguments, which `push_to_hub` passes, are ignored."""
        write_model(Path(save_directory), self.config, self.state_dict())

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **hub_arguments: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Load a model from a folder, a bundled model or the Hub, in float32 and evaluation mode.

        hub_arguments: `revision`, `token`, `cache_dir`, `local_files_only` and `subfolder` of `huggingface_hub`.
        """
        place = pretrained_model_name_or_path
        config_file, file = (find_file(place, name, **hub_arguments) for name in (CONFIG, WEIGHTS))
        config, weights = _read_config(config_file, cls.Config), read_safetensors(file)
        for name, count in vars(config).items():
            if name.endswith(_REPEATED) and count > len(weights):  # checked before thousands of layers are created
                raise InputError(f"{config_file}: {name} is {count}; {file} has only {len(weights)} tensors")
        model = cls.without_weights(config)
        expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        if wrong := misfit(expected, weights):
            raise InputError(f"{file} does not fit its {CONFIG} ({wrong})")
        for name, right in model.state_dict().items():
            if right.is_floating_point() != weights[name].is_floating_point() or weights[name].is_complex():
                raise InputError(f"{file}: {name} is {weights[name].dtype}; expected {right.dtype}")
        check_finite_weights(file, weights)
        weights = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
        model.load_state_dict(weights, assign=True)
        return model.eval()

    @classmethod
    def without_weights(cls, config: Any) -> Self:
        """Return a model on the meta device, without random initialization, to load weights into."""
        with torch.device("meta"), _NoInitialization():
            return cls(config)


class _NoInitialization(TorchFunctionMode):
    """A mode that skips `torch.nn.init`. On the meta device, initialization only makes torch import its compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        skipped = getattr(func, "__module__", None) == "torch.nn.init"  # some torch functions have no module
        return kwargs.get("tensor") if skipped else func(*args, **kwargs)


def write_model(folder: Path, config: Any, weights: Mapping[str, Tensor]) -> None:
    """Write a model folder, each file atomically. The config is written last, and no model loads without it."""
    folder.mkdir(parents=True, exist_ok=True)
    text, file = json.dumps(dataclasses.asdict(config), indent=2) + "\n", folder / CONFIG
    if file.exists() and file.read_text() != text:
        file.unlink()  # after an interruption, new weights must not load with an old config
    whole = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    try:
        write_atomically(folder / WEIGHTS, lambda path: safetensors.torch.save_file(whole, path))
    except safetensors.SafetensorError as error:  # a full disk
        raise InputError(f"{folder / WEIGHTS} could not be written: {error}") from error
    write_atomically(file, lambda path: path.write_text(text))


def find_file(place: str | Path, name: str, **hub_arguments: Any) -> Path:
    """Return the file `name` of a folder, a bundled model or a Hub id. Files of a Hub id are downloaded and cached.

    A single request checks whether the Hub can be reached. `hf_hub_download` alone would retry for half a minute, and
    an unknown id is often a mistyped folder.
    """
    place = place_of(place)
    if Path(place).exists():  # an existing folder takes precedence over a Hub id
        folder = Path(place) / hub_arguments.get("subfolder", "")
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no {name}; expected a folder written by save_pretrained")
        return folder / name
    check_name(place)
    silence = ""
    try:
        if not hub_arguments.get("local_files_only"):
            within = {key: hub_arguments[key] for key in ("subfolder", "revision") if key in hub_arguments}
            get_hf_file_metadata(hf_hub_url(str(place), name, **within), token=hub_arguments.get("token"))
    except (HfHubHTTPError, HFValidationError):
        pass  # the Hub answered; the download reports what is wrong
    except Exception as error:  # no answer; the class differs between versions of huggingface_hub
        hub_arguments["local_files_only"] = True
        silence = f"the Hub cannot be reached ({str(error).strip() or type(error).__name__})"
    try:
        return Path(hf_hub_download(str(place), name, **hub_arguments))
    except HFValidationError as error:
        raise InputError(f"{place} is neither a folder nor a Hub id; expected one of them") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = silence or reason_of(error)
        raise InputError(f"{place} is not a folder, and not a Hub id with {name}: {reason}") from error


def _read_config(file: Path, config_type: type[Any]) -> Any:
    """Read a config from JSON. Raises InputError for unknown, missing or invalid values."""
    values = read_json(file)
    check_types(values, config_type, f"{file}: ")
    try:
        check_at_most(**values)
        return config_type(**values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{file}: {error}") from error


def check_finite_weights(file: object, weights: Mapping[str, Tensor]) -> None:
    """Raise InputError if a weight is NaN or infinite, before anything is computed with it."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and tensor.numel():
            extremes = torch.stack(tensor.aminmax())
            if not extremes.isfinite().all():
                raise InputError(f"{file}: {name} holds NaN or infinity; the weights are broken")


def misfit(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> str:
    """Return a text of missing, unexpected and misshaped tensors, the first few of each; "" if all fit."""
    wrong = {
        "missing": sorted(expected.keys() - tensors.keys()),
        "unexpected": sorted(tensors.keys() - expected.keys()),
        "of another shape": [
            f"{name} {tuple(tensors[name].shape)} instead of {shape}"
            for name, shape in sorted(expected.items())
            if name in tensors and tuple(tensors[name].shape) != shape
        ],
    }
    more = {what: f" and {len(names) - _LISTED} more" * (len(names) > _LISTED) for what, names in wrong.items()}
    return "; ".join(f"{what}: {', '.join(names[:_LISTED])}{more[what]}" for what, names in wrong.items() if names)
