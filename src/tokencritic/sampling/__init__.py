"""Sampling: the loop, its scorers, and what is built on it."""

from tokencritic.sampling.edit import edit
from tokencritic.sampling.loop import sample
from tokencritic.sampling.propose import Proposal, Step, propose
from tokencritic.sampling.refine import refine
from tokencritic.sampling.scorers import ChanceScorer, ConfidenceScorer, CriticScorer, HaltonScorer, RandomScorer
from tokencritic.sampling.trace import Trace, TraceStep

__all__ = [
    "ChanceScorer",
    "ConfidenceScorer",
    "CriticScorer",
    "HaltonScorer",
    "Proposal",
    "RandomScorer",
    "Step",
    "Trace",
    "TraceStep",
    "edit",
    "propose",
    "refine",
    "sample",
]
