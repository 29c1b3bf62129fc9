"""Readers raise nothing but InputError, and sampling never returns a mask token. `make fuzz` runs longer."""

import json
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tokencritic import ConfidenceScorer, InputError, MaskedGenerator, sample
from tokencritic.data.sources import open_source
from tokencritic.data.tokens import TokenArrays
from tokencritic.files import read_json, read_yaml
from tokencritic.foreign_weights import read_flax, read_tensors
from tokencritic.pictures.grids import read_note
from tokencritic.pipeline_folder import load_part, read_pipeline
from tokencritic.pretrained import place_of

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0.5"))
MODEL = Path(place_of("fashion-mnist"))
READERS = {
    "a.json": read_json,
    "a.yaml": read_yaml,
    "a.pkl": lambda file: read_tensors(file, "a model"),
    "a.safetensors": lambda file: read_tensors(file, "a model"),
    "a.flax": read_flax,
    "tokens.npz": TokenArrays.open,
    "a.png": read_note,
    "pipeline.json": lambda file: read_pipeline(file.parent),
    "config.json": lambda file: load_part(file.parent, "generator"),
}
JSON = {"pipeline.json": MODEL / "pipeline.json", "config.json": MODEL / "generator/config.json"}
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([[]]) | st.just({"a": 1})


@st.composite
def contents(draw, name):
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.binary(max_size=200))
    if kind == 1:
        return draw(st.sampled_from([b"[", b'{"a":', b"- ", b"1", b"("])) * draw(st.integers(1, 10**4))
    if name in JSON and kind == 2:
        facts = json.loads(JSON[name].read_text())
        facts[draw(st.sampled_from(sorted(facts)))] = draw(VALUES)
        return json.dumps(facts).encode()
    valid = JSON[name].read_bytes() if name in JSON else pickle.dumps({"a": np.arange(6), "b": {"c": np.ones(2)}})
    place = draw(st.integers(0, len(valid)))
    return valid[:place] + draw(st.binary(max_size=4)) + valid[place + draw(st.integers(0, 4)) :]


@pytest.mark.parametrize("name", READERS)
def test_a_reader_raises_nothing_but_input_error(tmp_path, name):
    file, end = tmp_path / name, time.monotonic() + SECONDS
    (tmp_path / "model.safetensors").write_bytes(b"")

    @settings(max_examples=10**6 if SECONDS > 1 else 60, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(contents(name))
    def run(content):
        if time.monotonic() < end:
            file.write_bytes(content)
            try:
                READERS[name](file)
            except InputError as error:
                assert "\n" not in str(error)  # noqa: PT017

    run()


def test_large_labels_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 8, 8), np.uint8), labels=np.array([2**40]))
    with pytest.raises(InputError, match="labels holds 1099511627776"):
        open_source(tmp_path / "a.npz")


class _Own(MaskedGenerator):
    num_tokens, codebook_size, num_classes = 4, 5, 0

    def __init__(self, mask_id, columns):
        self.mask_id, self.columns = mask_id, columns

    def __call__(self, masked_tokens, labels):
        return torch.zeros(*masked_tokens.shape, self.columns)


@pytest.mark.parametrize(("mask_id", "columns", "match"), [(0, 5, "one of the codes"), (5, 6, "6 columns")])
def test_a_mask_token_is_never_sampled(mask_id, columns, match):
    with pytest.raises(InputError, match=match):
        sample(_Own(mask_id, columns), ConfidenceScorer(), None, [0], steps=2)
