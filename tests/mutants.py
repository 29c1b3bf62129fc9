"""Mutation tests: insert known mistakes into the code and check that a test fails for each. `make mutants` runs them.

Each entry is one plausible mistake, several of them found in other implementations: the file, the correct text, the
wrong text, and the tests that must fail. Mutants run on a copy of the tree.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

MUTANTS = {
    "--paper diagnosed as MaskGIT": (
        "cli/diagnose.py",
        'if "sampler" in changes',
        "if given.sampler",
        "tests/cli/test_diagnose.py",
    ),
    "the page refuses its own cost": (
        "studio/requests.py",
        "return min(cost, self.limits.steps)",
        "return cost",
        "tests/studio/test_service.py",
    ),
    "guidance forgets the device": (
        "guidance.py",
        "return self.generator.device",
        'return torch.device("cpu")',
        "tests/test_contracts.py",
    ),
    "ranks split batches": (
        "distribution.py",
        "number // group % self.size",
        "number % self.size",
        "tests/data/test_order.py",
    ),
    "label polarity flipped": (
        "training/losses.py",
        "originals = ~mask if",
        "originals = mask if",
        "tests/training/test_losses.py",
    ),
    "label compares tokens at every position": (
        "training/losses.py",
        'originals = ~mask if target == "masked" else',
        "originals = ",
        "tests/training/test_losses.py",
    ),
    "critic reads the mask itself": (
        "training/losses.py",
        "labels, previous)",
        "labels, mask)",
        "tests/training/test_losses.py",
    ),
    "ratio offset the wrong way round": (
        "training/losses.py",
        "_log_odds(~mask, mask)",
        "_log_odds(mask, ~mask)",
        "tests/training/test_losses.py",
    ),
    "inline critic's labels flipped": (
        "training/losses.py",
        "~training_mask(seeds, num_tokens)",
        "training_mask(seeds, num_tokens)",
        "tests/training/test_inline_critic.py",
    ),
    "inline critic's offset the wrong way round": (
        "training/losses.py",
        "_log_odds(originals & ~mask, ~originals & ~mask)",
        "_log_odds(~originals & ~mask, originals & ~mask)",
        "tests/training/test_inline_critic.py",
    ),
    "inline critic's offset counts hidden tokens": (
        "training/losses.py",
        "_log_odds(originals & ~mask, ~originals & ~mask)",
        "_log_odds(originals, ~originals)",
        "tests/training/test_inline_critic.py",
    ),
    "inline critic learns at hidden tokens": (
        "training/losses.py",
        "values.masked_fill(mask, 0), logits, originals, ~mask",
        "values, logits, originals, ~mask",
        "tests/training/test_inline_critic.py",
    ),
    "inline critic re-masks more than its quota": (
        "sampling/scorers.py",
        "(quota * share)",
        "share",
        "tests/sampling/test_inline.py",
    ),
    "inline critic re-masks frozen tokens": (
        "sampling/scorers.py",
        "visible = free & ~proposal.mask",
        "visible = ~proposal.mask",
        "tests/sampling/test_inline.py",
    ),
    "the last step re-masks": (
        "sampling/loop.py",
        "scores, mask = None, torch.zeros_like(mask)",
        "scores, mask = None, mask",
        "tests/sampling/test_inline.py",
    ),
    "features from a second evaluation": (
        "sampling/propose.py",
        "logits, features = generator.logits_with_features(masked_tokens, labels, positions)",
        "logits, features = generator.logits_at(masked_tokens, labels, positions), generator.features(masked_tokens, labels)",
        "tests/sampling/test_inline.py",
    ),
    "constant Gumbel noise annealed": (
        "sampling/scorers.py",
        "self.selection_noise * proposal.selection_gumbel()",
        "self.selection_noise * proposal.step.time * proposal.selection_gumbel()",
        "tests/sampling/test_scorers.py",
    ),
    "frozen generator keeps its dropout": (
        "training/losses.py",
        "with evaluating(*generator.networks):",
        "with evaluating():",
        "tests/training/test_losses.py",
    ),
    "loss on visible tokens too": (
        "training/losses.py",
        "view(mask.shape).masked_fill(~mask, 0)",
        "view(mask.shape)",
        "tests/training/test_losses.py",
    ),
    "critic window closed at its end": (
        "plan.py",
        "return end < step.time <= start",
        "return end <= step.time <= start",
        "tests/sampling/test_scorers.py",
    ),
    "kept tokens re-masked after the critic window": (
        "plan.py",
        "return end < step.time <= start",
        "return step.time <= start",
        "tests/sampling/test_loop.py",
    ),
    "critic evaluated before its window": (
        "plan.py",
        "return end < step.time <= start",
        "return end < step.time",
        "tests/sampling/test_loop.py",
    ),
    "k off by one": (
        "masking.py",
        "< counts)",
        "<= counts)",
        "tests/test_masking.py tests/sampling/test_loop.py",
    ),
    "NaN in logits passes for a code": (
        "sampling/loop.py",
        "~logits.amax(-1).isfinite().all()",
        "torch.zeros((), dtype=torch.bool)",
        "tests/sampling/test_loop.py",
    ),
    "NaN in scores passes for a rank": (
        "sampling/loop.py",
        "= scores.isnan().any()",
        "= torch.zeros((), dtype=torch.bool)",
        "tests/sampling/test_loop.py",
    ),
    "NaN in the scores that a refinement starts with": (
        "sampling/starts.py",
        "scores.isnan().any()",
        "torch.zeros((), dtype=torch.bool)",
        "tests/sampling/test_loop.py",
    ),
    "NaN in weights is loaded": (
        "models/saved.py",
        "        check_finite_weights(file, weights)\n",
        "",
        "tests/models/test_saved.py",
    ),
    "NaN in imported weights is written": (
        "interop/checkpoint.py",
        "        check_finite_weights(self.file, tensors)\n",
        "",
        "tests/cli/test_import_command.py",
    ),
    "candidates share one seed": (
        "randomness.py",
        "derived_seeds(seeds, numbers, 0)",
        "seeds",
        "tests/test_randomness.py",
    ),
    "a mask id among the codes is accepted": (
        "adapters.py",
        "if 0 <= generator.mask_id < generator.codebook_size:",
        "if False:",
        "tests/test_readers.py",
    ),
    "a logit of the mask token is sampled": (
        "sampling/loop.py",
        "proposal.logits.shape[-1] != generator.codebook_size",
        "False",
        "tests/test_readers.py",
    ),
    "types of settings in a file are not checked": (
        "sampling/settings.py",
        "    check_types(values, SamplingSettings)\n",
        "",
        "tests/fuzz/test_text_files.py",
    ),
    "terminal codes reach the terminal": (
        "cli/terminal.py",
        "one if one in self._kept else one_line(one)",
        "one",
        "tests/cli/test_terminal.py",
    ),
    "two runs tokenize into one folder": (
        "data/tokenizing.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "tests/data/test_tokenizing.py",
    ),
    "k rounded down": (
        "masking.py",
        "torch.ceil(num_tokens",
        "torch.floor(num_tokens",
        "tests/test_masking.py",
    ),
    "official MaskGIT's counts in float64": (
        "schedules.py",
        "return _float32(math.cos(_float32(_float32(0.5 * math.pi) * _float32(progress))))",
        "return math.cos(0.5 * math.pi * progress)",
        "tests/sampling/test_schedules.py",
    ),
    "guidance grows too early": (
        "schedules.py",
        '"linear": 1 - left',
        '"linear": left',
        "tests/sampling/test_schedules.py",
    ),
    "TiTok's confidence normalised": (
        "scoring.py",
        'if kind != "tempered_logit":',
        "if True:",
        "tests/sampling/test_schedules.py",
    ),
    "k of a plan rounded down": (
        "schedules.py",
        "math.ceil(num_tokens",
        "math.floor(num_tokens",
        "tests/test_masking.py tests/sampling/test_exact.py",
    ),
    "highest scores hidden": (
        "masking.py",
        "scores.argsort(dim=1, stable=True)",
        "scores.argsort(dim=1, stable=True, descending=True)",
        "tests/test_masking.py tests/sampling/test_exact.py",
    ),
    "kept tokens overwritten": (
        "sampling/propose.py",
        "tokens = torch.where(mask, put(masked_tokens, positions, sampled), masked_tokens)",
        "tokens = put(masked_tokens, positions, sampled)",
        "tests/sampling/test_propose.py",
    ),
    "kept tokens compete again in MaskGIT": (
        "scoring.py",
        "return torch.where(self.mask, put(kept, self.positions, values), kept)",
        "return put(kept * 0, self.positions, values)",
        "tests/sampling/test_scorers.py tests/sampling/test_exact.py",
    ),
    "revoking switched off": (
        "sampling/loop.py",
        "scorer.noise(proposal)).masked_fill(~free, torch.inf)",
        "scorer.noise(proposal)).masked_fill(~free | ~proposal.mask, torch.inf)",
        "tests/sampling/test_loop.py tests/sampling/test_exact.py",
    ),
    "frozen tokens may be hidden": (
        "sampling/loop.py",
        "scorer.noise(proposal)).masked_fill(~free, torch.inf)",
        "scorer.noise(proposal))",
        "tests/sampling/test_loop.py",
    ),
    "noise shown as what the critic thinks": (
        "sampling/loop.py",
        "return scores.masked_fill(~free, torch.inf)",
        "return noisy.masked_fill(~free, torch.inf)",
        "tests/sampling/test_loop.py",
    ),
    "random re-masking re-masks nothing": (
        "sampling/scorers.py",
        "return proposal.selection_uniforms()\n",
        "return proposal.selection_uniforms().masked_fill(~proposal.mask, 2)\n",
        "tests/sampling/test_exact.py tests/sampling/test_scorers.py",
    ),
    "a critic window that opens late never chooses": (
        "sampling/settings.py",
        "start = max(start, min(1.0, 2 / self.steps))",
        "start = max(start, min(1.0, 1 / self.steps))",
        "tests/sampling/test_settings.py",
    ),
    "a critic window without a step passes": (
        "sampling/settings.py",
        "if self.steps <= 1 + row.uses_inline_critic or not row.revokes:",
        "if True:",
        "tests/sampling/test_settings.py tests/test_pipeline.py",
    ),
    "confidence after the window as noisy as before it": (
        "sampling/scorers.py",
        "ConfidenceScorer(settings.early_noise), ConfidenceScorer())",
        "ConfidenceScorer(settings.early_noise), ConfidenceScorer(settings.early_noise))",
        "tests/sampling/test_scorers.py",
    ),
    "the control is charged for a critic": (
        "sampling/settings.py",
        "(chosen if row.uses_critic else 0)",
        "chosen",
        "tests/sampling/test_settings.py",
    ),
    "the control has other settings than the critic": (
        "sampling/model_settings.py",
        'if (chosen, usual) == ("random-remask", "critic")',
        "if False",
        "tests/test_pipeline.py tests/sampling/test_settings.py",
    ),
    "critic noise not annealed": (
        "sampling/scorers.py",
        "self.selection_noise * proposal.step.time * (",
        "self.selection_noise * (",
        "tests/sampling/test_scorers.py",
    ),
    "Gumbel noise not annealed": (
        "sampling/scorers.py",
        "self.selection_noise * SCHEDULES[self.schedule].noise_left(step.done, step.steps)",
        "self.selection_noise",
        "tests/sampling/test_scorers.py tests/sampling/test_exact.py",
    ),
    "noise not centred": (
        "sampling/scorers.py",
        "(proposal.selection_uniforms() - 0.5)",
        "proposal.selection_uniforms()",
        "tests/sampling/test_scorers.py",
    ),
    "the same noise at every step": (
        "sampling/propose.py",
        "uniforms(seeds, mask.shape[1], Use.DRAW, step.index)",
        "uniforms(seeds, mask.shape[1], Use.DRAW, 0)",
        "tests/sampling/test_exact.py",
    ),
    "one noise for sampling and choosing": (
        "scoring.py",
        "Use.SELECT, self.step.index",
        "Use.DRAW, self.step.index",
        "tests/sampling/test_exact.py tests/sampling/test_scorers.py",
    ),
    "temperature multiplies": (
        "sampling/propose.py",
        "keepdim=True)) / temperature",
        "keepdim=True)) * temperature",
        "tests/sampling/test_propose.py tests/sampling/test_exact.py",
    ),
    "temperature runs the wrong way": (
        "schedules.py",
        "return end + (start - end) * left",
        "return start + (end - start) * left",
        "tests/sampling/test_exact.py",
    ),
    "a revoking step with equal k skipped": (
        "plan.py",
        " or (before != self.num_free and revokes(step))",
        "",
        "tests/sampling/test_loop.py",
    ),
    "first evaluation shared across labels": (
        "sampling/loop.py",
        "logits[self.inverse]",
        "logits[:1].expand(len(masked_tokens), -1, -1)",
        "tests/sampling/test_loop.py",
    ),
    "noise depends on the batch": (
        "randomness.py",
        "_words(seeds[:, None], use",
        "_words(seeds[:, None] + len(seeds), use",
        "tests/test_randomness.py tests/sampling/test_loop.py",
    ),
    "class token's logits returned": (
        "models/transformer.py",
        "positions + 1",
        "positions",
        "tests/models/test_models.py",
    ),
    "norm before instead of after": (
        "models/transformer.py",
        "x = self.attention_norm(x + self._drop(self.out(attended)))",
        "x = x + self._drop(self.out(self.attention_norm(attended)))",
        "tests/models/test_models.py",
    ),
    "guidance interpolates the wrong way": (
        "guidance.py",
        "without + self.scale * (with_class - without)",
        "with_class + self.scale * (without - with_class)",
        "tests/models/test_models.py tests/test_contracts.py",
    ),
    "another generator's codes shifted": (
        "adapters.py",
        "self._own_mask, masked_tokens + self._first)",
        "self._own_mask, masked_tokens)",
        "tests/test_contracts.py",
    ),
    "another generator's mask among its codes": (
        "adapters.py",
        "else logits[..., self._first : last]",
        "else logits[..., :size]",
        "tests/test_contracts.py",
    ),
    "gradients of all accumulated parts but the last are dropped": (
        "training/learner.py",
        "            gathered.append({name",
        "            if part is not parts[-1]:\n"
        "                self.optimizer.zero_grad()\n"
        "            gathered.append({name",
        "tests/training/test_training_loop.py::test_accumulation_changes_nothing_but_rounding",
    ),
    "the average is kept and never used": (
        "training/run_folder.py",
        '_AVERAGE = "average."',
        '_AVERAGE = "model."',
        "tests/training/test_training_loop.py::test_a_run_learns_logs_and_leaves_a_model_of_averaged_weights",
    ),
    "a checkpoint is not compared with its digest": (
        "training/run_folder.py",
        'if notes.pop("digest") != _digest(path / STATE, notes):',
        'if not notes.pop("digest"):',
        "tests/training/test_checkpoint.py",
    ),
    "refinement reuses the noise that sampled the image": (
        "sampling/starts.py",
        "seeds = resampling_seeds(as_seeds(seeds, len(tokens), generator.device))",
        "seeds = as_seeds(seeds, len(tokens), generator.device)",
        "tests/sampling/test_loop.py",
    ),
    "precision and recall swapped": (
        "evaluation/metrics.py",
        "Hits(fake_hit.double(), real_hit.double())",
        "Hits(real_hit.double(), fake_hit.double())",
        "tests/evaluation/test_manifold.py",
    ),
    "rejection keeps the worst": (
        "sampling/rejection.py",
        "view(-1, candidates).argmax(dim=1)",
        "view(-1, candidates).argmin(dim=1)",
        "tests/sampling/test_rejection.py",
    ),
    "the host looks at every step": (
        "sampling/loop.py",
        '{step.index}"] = scores.isnan().any()',
        '{step.index}"] = scores.isnan().any() | (mask.sum().item() < 0)',
        "tests/sampling/test_on_gpu.py",
    ),
    "a CPU tensor in the sampling loop": (
        "sampling/loop.py",
        "scores, mask = None, torch.zeros_like(mask)",
        "scores, mask = None, torch.zeros(mask.shape, dtype=torch.bool)",
        "tests/sampling/test_on_gpu.py",
    ),
    "noise made on the CPU": (
        "randomness.py",
        "torch.arange((count + 3) // 4, device=seeds.device)",
        "torch.arange((count + 3) // 4)",
        "tests/sampling/test_on_gpu.py",
    ),
    "a training step reads its loss": (
        "training/learner.py",
        "factor = self.ranks.size / total[1]",
        "factor = self.ranks.size / total[1].item()",
        "tests/training/test_on_gpu.py",
    ),
    "a training step waits for its mask": (
        "masking.py",
        'fixed_shapes or mask.device.type != "cpu"',
        "fixed_shapes",
        "tests/training/test_on_gpu.py",
    ),
    "another shape at each compiled step": (
        "sampling/propose.py",
        "most_masked is None or generator.fixed_shapes",
        "most_masked is None",
        "tests/sampling/test_compiled.py",
    ),
    "the slope of GELU is off": (
        "models/transformer.py",
        "alpha=3",
        "alpha=2",
        "tests/models/test_models.py",
    ),
    "the cost of a refinement leaves out the refinement": (
        "evaluation/samples.py",
        "return self.pipe.cost(self.settings) + more",
        "return self.pipe.cost(self.settings)",
        "tests/cli/test_measuring_commands.py",
    ),
    "the control of refinement asks the critic": (
        "evaluation/comparison.py",
        '("at random", chosen.with_random_remasking())',
        '("at random", chosen)',
        "tests/evaluation/test_tuning.py",
    ),
    "null label of a foreign generator not translated": (
        "adapters.py",
        "labels = torch.where(labels == self.num_classes, self._own_null, labels)",
        "pass",
        "tests/test_contracts.py",
    ),
    "codes of a foreign vocabulary taken from its first column": (
        "adapters.py",
        "logits[..., self._first : last]",
        "logits[..., : self.codebook_size]",
        "tests/test_contracts.py",
    ),
    "labels given to a generator without classes": (
        "pipeline.py",
        "own = None if labels is None else labels[rows], candidate",
        "own = torch.zeros_like(rows) if labels is None else labels[rows], candidate",
        "tests/cli/test_factories.py",
    ),
    "--critic does not replace the model's critic": (
        "pipeline.py",
        "**self.parts | critic",
        "**critic | self.parts",
        "tests/test_pipeline.py",
    ),
    "code in a foreign file is run": (
        "foreign_weights.py",
        "weights_only=True)",
        "weights_only=False)",
        "tests/interop/test_foreign_weights.py",
    ),
    "cached results survive a change of a foreign network's code": (
        "contracts.py",
        "network_fingerprint(self.networks, source=True)",
        "network_fingerprint(self.networks, source=False)",
        "tests/test_contracts.py",
    ),
    "swapped files are not noticed": (
        "interop/importing.py",
        'swapped == ((kind, "tokenizer"), (kind, "generator"))',
        "False",
        "tests/cli/test_import_command.py",
    ),
}


def survives(name: str, folder: Path) -> bool:
    """Return whether all tests pass with the mistake. Exits if the correct text does not occur exactly once."""
    file, right, wrong, tests = MUTANTS[name]
    path = folder / "src/tokencritic" / file
    text = path.read_text()
    if text.count(right) != 1:
        sys.exit(
            f"mutant {name!r}: {right!r} occurs {text.count(right)} times in {file}, not once; update tests/mutants.py"
        )
    path.write_text(text.replace(right, wrong))
    alive = passes(folder, tests)
    path.write_text(text)
    return alive


def passes(folder: Path, tests: str) -> bool:
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"pytest could not run {tests}\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part in ("src", "tests", "examples"):
            shutil.copytree(ROOT / part, folder / part)
        shutil.copy(ROOT / "pyproject.toml", folder)
        names = sys.argv[1:] or list(MUTANTS)
        if not passes(folder, " ".join(sorted({test for name in names for test in MUTANTS[name][3].split()}))):
            sys.exit("the tests fail without any mutant; expected them to pass")
        survivors = []
        for name in names:
            alive = survives(name, folder)
            survivors += [name] * alive
            print(f"{'SURVIVED' if alive else 'caught  '}  {name}", flush=True)
    if survivors:
        sys.exit(f"{len(survivors)} mutants survived; a test is missing")


if __name__ == "__main__":
    main()
