#!/bin/sh
# Runs the benchmarks of the GPU with the first interpreter whose torch sees one, else as a dry run with one that has torch.
# Nothing comes from a network: WHEELS names a folder of wheels that the interpreter lacks, such as transformers.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

tries() { # whether one of the interpreters passes a test
    for python in "${PYTHON:-python3}" python3 "$root/.venv/bin/python"; do
        "$python" -c "$1" >/dev/null 2>&1 && return 0
    done
    return 1
}

tries "import sys, torch; sys.exit(not torch.cuda.is_available())" || tries "import torch" || {
    echo "make gpu needs a python3 with torch (PYTHON=...); run 'make demo' once where there is a network" >&2
    exit 2
}
if [ -n "${WHEELS:-}" ]; then
    "$python" -m pip install --quiet --no-index --no-deps --upgrade --target "$root/build/wheels" "$WHEELS"/*.whl
    PYTHONPATH="$root/build/wheels${PYTHONPATH:+:$PYTHONPATH}"
fi
PYTHONPATH="$root/benchmarks:$root${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH PYTHONUNBUFFERED=1
exec "$python" -m gpu "$@"
