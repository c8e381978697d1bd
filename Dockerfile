# The whole package in an image; docs/install.md has the commands.
#   BASE       an image with pip and Python 3.11 or newer as python3
#   EXTRAS     extras of the package, by commas; empty: the core without torch
#   ENGINE     inference engine: none (the torch sampler), cpu or cuda (vLLM)
#   PIP_FLAGS  further flags of pip, such as another index
ARG BASE=python:3.12-slim
FROM ${BASE}

ARG EXTRAS=train
ARG ENGINE=none
ARG PIP_FLAGS=
ENV PIP_BREAK_SYSTEM_PACKAGES=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

RUN case "$ENGINE" in none | cpu | cuda) ;; \
    *) echo "ENGINE=$ENGINE: must be none, cpu or cuda" >&2; exit 2 ;; esac

WORKDIR /usr/src/veriloop
COPY . .
RUN python3 -m pip install $PIP_FLAGS -c requirements/torch.txt -c requirements/locked.txt \
    ".${EXTRAS:+[$EXTRAS]}"
# For a CPU its dependencies would bring CUDA builds; the lock files name all that it needs instead.
RUN case "$ENGINE" in \
    cpu) python3 -m pip install $PIP_FLAGS --no-deps -r requirements/locked.txt \
        -r requirements/engine-locked.txt -r requirements/engine-cpu.txt ;; \
    cuda) python3 -m pip install $PIP_FLAGS \
        -c requirements/locked.txt -c requirements/engine-locked.txt \
        -r requirements/engine-cuda.txt ;; esac

WORKDIR /work
ENTRYPOINT ["python3", "-m", "veriloop.stages.cli"]
CMD ["--help"]
