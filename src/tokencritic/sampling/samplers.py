"""The table of samplers for the command line, tables, plots and the studio. Importable without torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampler:
    """A row of the table of samplers.

    title, colour, score_title: labels and colour in tables and pictures.
    summary: text in help pages.
    settings: the fields of `SamplingSettings` that apply besides the common ones.
    default_noise: the default of `selection_noise`.
    uses_critic: the sampler evaluates the critic.
    uses_inline_critic: the sampler evaluates the inline critic on features of a generator evaluation.
    revokes: the sampler re-masks visible tokens inside the critic window.
    refines: the sampler can score tokens that it did not sample.
    compared: `token-critic compare` includes the sampler.
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

# To add a sampler, add one row here and one class in scorers.py. The colours are the palette of Okabe and Ito, which is
# safe for colour blindness.
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
            "the generator's confidence, and the inline critic's scores of visible tokens",
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
            "random scores, the control",
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
            "the order of a Halton sequence",
            score_title="order",
            settings=("halton_roll",),
            compared=False,
        ),
    )
}
