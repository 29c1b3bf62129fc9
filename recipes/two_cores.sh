# Helpers that the recipes source. Recipes run from the root of the repository, so a relative FOLDER starts there.
# SMOKE=1000 divides every number of steps and images by 1000, down to a working minimum: a smoke test of a recipe.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=${BIN:-.venv/bin}

# Two processes of one thread each are faster than one process of two threads; results agree up to rounding.
export OMP_NUM_THREADS=1

one() { OMP_NUM_THREADS=2 "$bin/token-critic" "$@"; }
both() { "$bin/torchrun" --standalone --nproc-per-node 2 --no-python -- "$bin/token-critic" "$@"; }
# published FILE NAME: keep a result as NAME.json in the folder $results, its command without the paths of this machine
published() {
  mkdir -p "$results"
  sed -E '/^  "command":/s/ --(out|cache|inception) [^ "]+//g' "$1" >"$results/$2.json"
}
# scaled NUMBER [LEAST]: NUMBER divided by SMOKE, at least LEAST
scaled() { local number=$(($1 / ${SMOKE:-1})) least=${2:-1}; echo $((number > least ? number : least)); }
