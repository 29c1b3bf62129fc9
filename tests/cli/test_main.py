import platform
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("token-critic")


def run(*arguments):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_help_and_version():
    assert run("--help").stdout.startswith("usage: token-critic COMMAND")
    assert run("--help").stdout == run().stdout
    assert run("--version").stdout.startswith("token-critic 0.")


def test_help_does_not_wait_for_heavy_imports():
    code = "import sys; from tokencritic.cli.main import main; main(['--help']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "jsonargparse", "PIL", "matplotlib", "huggingface_hub"} & set(loaded)


def test_an_unknown_command_is_one_line_and_exit_code_2():
    done = run("sampel")
    assert done.returncode == 2
    assert done.stderr == "token-critic: unknown command 'sampel'; `token-critic --help` lists them\n"
    assert done.stdout == ""


def test_a_closed_pipe_ends_a_command_in_silence():
    script = f"{COMMAND} --help | true; echo ${{PIPESTATUS[0]}}; {COMMAND} sample --help | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout == "141\n"


def test_a_closed_pipe_ends_a_command_with_work_in_silence(model, tmp_path):
    """The folder of a run stays as it was: the same command resumes."""
    short = "--model.width 16 --model.layers 1 --model.heads 2 --model.mlp_width 16 --training.batch_size 4 --steps 2"
    commands = [
        f"sample {model} --num 1 --out {tmp_path}/samples",
        f"train generator fashion-mnist --data fashion-mnist --run {tmp_path}/run --device cpu {short}",
        "train generator fashion-mnist --print_config",
    ]
    ends = "; ".join(f"{COMMAND} {command} 2> {tmp_path}/err | true; echo ${{PIPESTATUS[0]}}" for command in commands)
    script = f"{ends}; cat {tmp_path}/err"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "141\n" * len(commands)
    assert (tmp_path / "run/checkpoints/000000002").is_dir()


def test_terminal_codes_in_an_error_are_escaped():
    done = run("train", "tokenizer", "fashion-mnist", "--data", "absent", "--run", "/dev/null/\x1b[31m\n")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert r"/dev/null/\x1b[31m\n" in done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_memory_that_was_freed_is_not_asked_of_the_system_again():
    code = """
import resource
from tokencritic.cli import main

def verb():
    bytearray(2**26)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(2**26)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

main.main = verb
main.run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # pages that had to be had anew, of 16,384
