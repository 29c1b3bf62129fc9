"""Settings of a training run, settings of the optimizer, and presets."""

import math
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal, get_args, get_type_hints

from tokencritic.bounds import TRAINING_STEPS
from tokencritic.data.transforms import Crop
from tokencritic.errors import InputError, check_at_least, check_seed
from tokencritic.files import read_yaml


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training run. One of steps, epochs and minutes is required.

    batch_size: examples per step, over all ranks and accumulated parts.
    steps, epochs: the length of the run.
    minutes: a wall-clock budget as the length of the run. The learning-rate schedule fits it. Time before a resume
    counts.
    seed: seed of the order of examples, the masks and the samples.
    held_out: the share of images held out for validation, in [0, 0.5]. It is rounded to one image in k.
    accumulation: the number of parts into which a rank splits its batch, to save memory. Without dropout the result is
    the same.
    precision: bfloat16 uses autocast, for GPUs.
    compile: use torch.compile on the transformer's blocks.
    recompute_activations: use less memory for a third more time.
    distribution: ddp replicates the weights on every rank, fsdp shards them.
    log_every: steps between lines of the log.
    validate_seconds, checkpoint_seconds: minimum time between two validations and between two checkpoints.
    keep_every: keep the checkpoints of every so many steps; 0 keeps none.
    explosion: stop the run if the loss exceeds this factor times the larger of 1 and the mean loss of the first steps.
    tensorboard: also write TensorBoard logs; needs the extra `tensorboard`.
    """

    batch_size: int = 64
    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None
    seed: int = 0
    held_out: float = 0.02
    accumulation: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    recompute_activations: bool = False
    distribution: Literal["ddp", "fsdp"] = "ddp"
    log_every: int = 50
    validate_seconds: float = 120.0
    checkpoint_seconds: float = 60.0
    keep_every: int = 0
    explosion: float = 4.0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        values = vars(self)
        given = {name: values[name] for name in ("steps", "epochs", "minutes") if values[name] is not None}
        if len(given) > 1:
            raise InputError(f"{' and '.join(f'{n} is {v}' for n, v in given.items())}; give one of them")
        for name, value in given.items():
            if not 0 < value <= TRAINING_STEPS:
                raise InputError(f"{name} is {value}; it must be positive, and at most {TRAINING_STEPS}")
        check_at_least(1, **{name: values[name] for name in ("batch_size", "accumulation", "log_every")})
        check_at_least(0, **{name: values[name] for name in ("validate_seconds", "checkpoint_seconds", "keep_every")})
        for name in ("precision", "distribution"):
            if values[name] not in (known := get_args(get_type_hints(TrainingSettings)[name])):
                raise InputError(f"{name} is {values[name]!r}; choose {' or '.join(known)}")
        if not 0 <= self.held_out <= 0.5:
            raise InputError(f"held_out is {self.held_out}; it must lie in [0, 0.5]")
        if not self.explosion > 1:
            raise InputError(f"explosion is {self.explosion}; it must be above 1")
        check_seed(self.seed)

    def length(self, num_rows: int) -> float:
        """Return the length of a run in steps, or in seconds if `minutes` is set.

        num_rows: the number of examples in an epoch.
        """
        if self.steps is not None:
            return self.steps
        if self.epochs is not None:
            return math.ceil(self.epochs * num_rows / self.batch_size)
        if self.minutes is not None:
            return 60 * self.minutes
        raise InputError("none of steps, epochs and minutes is given; give one of them")


@dataclass(frozen=True)
class OptimizerSettings:
    """Settings of AdamW, its learning-rate schedule, gradient clipping and the moving average of the weights.

    learning_rate: the peak learning rate.
    betas: decay rates of the running means of gradients and of their squares.
    weight_decay: weight decay of matrices. Parameters of one dimension, such as biases and norms, have none.
    warmup: the share of the run during which the learning rate rises linearly from 0.
    schedule: cosine decays the learning rate to 0 over the run, constant keeps it.
    clip: maximum norm of the gradient.
    ema: decay of the moving average of the weights. It warms up, so that a short run does not keep its initial weights.
    """

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.96)
    weight_decay: float = 0.045
    warmup: float = 0.03
    schedule: Literal["cosine", "constant"] = "cosine"
    clip: float = 1.0
    ema: float = 0.999

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, value in {"learning_rate": self.learning_rate, "clip": self.clip}.items():
            if not value > 0:
                raise InputError(f"{name} is {value}; it must be positive")
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise InputError(f"betas is {self.betas}; expected two numbers in [0, 1)")
        check_at_least(0, weight_decay=self.weight_decay)
        if not (0 <= self.warmup < 1 and 0 <= self.ema < 1):
            raise InputError(f"warmup is {self.warmup} and ema {self.ema}; both must lie in [0, 1)")
        if self.schedule not in ("cosine", "constant"):
            raise InputError(f"schedule is {self.schedule!r}; choose cosine or constant")

    def rate(self, progress: float) -> float:
        """Return the learning rate at a progress in [0, 1]."""
        rise = min(1.0, progress / self.warmup) if self.warmup else 1.0
        fall = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))) if self.schedule == "cosine" else 1.0
        return self.learning_rate * rise * fall


@dataclass(frozen=True)
class Preset:
    """A recipe for one model: its config, the objective of its task, and settings.

    Sizes that depend on the data set are taken from the data set. A critic that starts from a generator's trunk takes
    its sizes from the trunk and keeps at most `layers` of its layers.
    """

    model: Any
    objective: Any
    optimizer: OptimizerSettings
    training: TrainingSettings


def check_config(file: str, preset: Preset) -> None:
    """Raise InputError unless a file of settings is a small YAML mapping with a mapping for each part of a preset."""
    values = read_yaml(file)
    for name, value in values.items():
        if value == {} and name not in vars(preset):  # which the parser takes for a part without settings
            raise InputError(f"--config {file}: Option {name!r} is not accepted")
    for name, part in vars(preset).items():
        if is_dataclass(part) and not isinstance(values.get(name, {}), dict):
            raise InputError(f"--config {file}: {name} is {values[name]!r:.60}; expected a mapping of its settings")


@dataclass(frozen=True)
class ImagePreset(Preset):
    """A recipe for a model that is trained on images.

    crop: center takes the central square of an image, random a box of random size and aspect ratio.
    flip: mirror each image with probability 1/2.
    workers: processes of each rank that read image files ahead; 0 reads them in the process that trains.
    """

    crop: Crop = "center"
    flip: bool = False
    workers: int = 4
