# For the recipes to source: where they run, and how they use two cores best. A FOLDER that is no whole path is one of the repository.
# LESS=1000 takes a thousandth of every number of steps and images, but no fewer than work: a look at whether all of it runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=${BIN:-.venv/bin}

# Two processes of one thread each use two cores better than one process of two; the result is the same but for rounding.
export OMP_NUM_THREADS=1

one() { OMP_NUM_THREADS=2 "$bin/token-critic" "$@"; }
both() { "$bin/torchrun" --standalone --nproc-per-node 2 --no-python -- "$bin/token-critic" "$@"; }
# scaled NUMBER [LEAST]: the number, or what LESS leaves of it
scaled() { local number=$(($1 / ${LESS:-1})) least=${2:-1}; echo $((number > least ? number : least)); }
