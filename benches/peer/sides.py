"""What both comparisons need: the Go program of this folder, and how a program is missed."""
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
USUAL_CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "provisor", "peer")


class Failure(Exception):
    """Something outside of the arguments is not as it must be."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def program(variable, usual, hint):
    """The path of a program that must be there."""
    found = shutil.which(os.environ.get(variable) or usual)
    if not found:
        raise Failure(f"{os.environ.get(variable) or usual} is not there: {hint}, or name it with {variable}")
    return found


def build_peer(cache):
    """The Go program of this folder, built once for each state of its sources and each Go."""
    go = program("GO", "go", "install the Go that go.mod names")
    version = subprocess.run([go, "version"], cwd=HERE, capture_output=True, text=True)
    if version.returncode:
        raise Failure(f"{go} version failed:\n{version.stderr.strip()}")
    state = hashlib.sha256(version.stdout.encode())
    for name in sorted(os.listdir(HERE)):
        if name in ("go.mod", "go.sum") or name.endswith(".go") and not name.endswith("_test.go"):
            with open(os.path.join(HERE, name), "rb") as source:
                state.update(name.encode() + b"\0" + source.read())
    name = state.hexdigest()[:16]
    built = os.path.join(cache, f"peer-{name}")
    if not os.path.exists(built):
        say("building the Go program; the first time it fetches and compiles Karpenter, which takes minutes")
        os.makedirs(cache, exist_ok=True)
        unfinished = f"{built}.{os.getpid()}"
        if subprocess.run([go, "build", "-buildvcs=false", "-o", unfinished, "."], cwd=HERE).returncode:
            raise Failure("the Go program was not built; what Go said stands above")
        os.replace(unfinished, built)
    return built, name
