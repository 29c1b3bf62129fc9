"""The examples run as documented and show the documented results."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_plug_in_runs_and_its_critic_wins():
    shares = [float(x) for x in re.findall(r"([\d.]+)% perfect", run("examples/plug_in.py"))]
    assert len(shares) == 3
    assert shares[1] > max(shares[0], shares[2]) + 10


def test_train_your_critic_runs_and_its_critic_wins_at_equal_steps():
    out = run("examples/train_your_critic.py")
    before, after = (
        [float(x) for x in re.findall(r"[\d.]+", line)[:2]] for line in out.splitlines() if "right" in line
    )
    assert after[0] > before[0] + 15  # percent of the images are right
    assert after[1] < before[1] - 0.15  # total variation distance


def test_a_generator_without_classes_gets_a_critic_by_the_commands():
    confidence, critic = (float(x) for x in re.findall(r"([\d.]+)% right", run("examples/unconditional.py")))
    assert critic > confidence + 20


def test_guidance_makes_a_generator_with_a_null_class_follow_its_labels():
    shares = [float(x) for x in re.findall(r"([\d.]+)% of the tokens", run("examples/null_class.py"))]
    assert shares[0] + 10 < shares[1] < shares[2]


def test_the_exact_world_writes_its_figure(tmp_path):
    out = run("examples/exact_world.py", "--samples", "200", "--out", str(tmp_path / "figure.png"))
    assert "a generator that is 20 % wrong, 4 steps, each at its best setting" in out
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
