"""The table of samplers. Importable without torch: the command line, tables, plots and the studio read it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampler:
    """A row of the table of samplers.

    title, colour, score_title: in tables and pictures. summary: in help texts. settings: those of `SamplingSettings` that it
    has beside the common ones. default_noise: its `selection_noise` where none is given. uses_critic: it evaluates the critic.
    uses_inline_critic: it evaluates the inline critic, on the features of a generator evaluation.
    revokes: it re-masks visible tokens inside the critic window. refines: it can judge tokens that it did not sample.
    compared: `token-critic compare` has a line of it.
    """

    name: str
    title: str
    colour: str
    summary: str
    score_title: str = "rank of score"
    settings: tuple[str, ...] = ()
    default_noise: float | None = None
    uses_critic: bool = False
    uses_inline_critic: bool = False
    revokes: bool = False
    refines: bool = True
    compared: bool = True


_WINDOW = ("critic_window", "early_noise")

# Adding a sampler is one row here and one class in scorers.py. Colours are of Okabe and Ito, told apart by all eyes.
SAMPLERS: dict[str, Sampler] = {
    row.name: row
    for row in (
        Sampler(
            "critic",
            "Token-Critic",
            "#0072B2",
            "the critic's scores (Algorithm 2)",
            score_title="critic's score",
            settings=("selection_noise", "noise_kind", *_WINDOW),
            default_noise=0.2,
            uses_critic=True,
            revokes=True,
        ),
        Sampler(
            "inline",
            "Inline critic",
            "#56B4E9",
            "the generator's confidence, and a head on the generator that re-masks visible tokens",
            score_title="head's score",
            settings=("selection_noise", "critic_window", "remask_quota", "remask_noise"),
            default_noise=4.5,
            uses_inline_critic=True,
            revokes=True,
        ),
        Sampler(
            "random-remask",
            "Random re-masking",
            "#CC79A7",
            "random scores in place of the critic's, the control",
            settings=_WINDOW,
            revokes=True,
        ),
        Sampler(
            "confidence",
            "MaskGIT",
            "#D55E00",
            "the generator's confidence",
            score_title="confidence rank",
            settings=("selection_noise",),
            default_noise=4.5,
            refines=False,
        ),
        Sampler(
            "random-order", "Random order", "#009E73", "a random order", score_title="random score", compared=False
        ),
        Sampler(
            "halton",
            "Halton order",
            "#000000",
            "an evenly spread order",
            score_title="order",
            settings=("halton_roll",),
            compared=False,
        ),
    )
}
