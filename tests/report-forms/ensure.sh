#!/usr/bin/env bash
# Prints the Python that checks the forms of reports, and makes it first if it must: once per machine, outside of the tree.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${PYTHON:-python3}"
command -v "$python" >/dev/null || { echo "missing: python3 with venv (Debian: python3 python3-venv)" >&2; exit 1; }
version="$("$python" -c 'import sys, platform; print(*sys.version_info[:3], platform.machine(), sep=".")')"
key="$({ cat "$here/requirements.txt"; echo "$version"; } | sha256sum | cut -c1-16)"
home="${XDG_CACHE_HOME:-$HOME/.cache}/provisor/report-forms-$key"
mkdir -p "$(dirname "$home")"
exec 9>"$home.lock"
flock 9
if [ ! -e "$home/complete" ]; then
  rm -rf "$home"
  "$python" -m venv "$home" >&2
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/requirements.txt" >&2
  touch "$home/complete"
fi
echo "$home/bin/python"
