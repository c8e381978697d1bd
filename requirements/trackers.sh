#!/bin/sh
# The trackers whose mirrors are tested, in a folder of their own beside .venv. Where they do not
# install this says so, and the tests say at their end what they did without.
set -u
cd "$(dirname "$0")/.."

home=outputs/cache/trackers
pins=$(cksum <requirements/trackers.txt | cut -d' ' -f1)
[ -e "$home/.installed-$pins" ] && exit 0
rm -rf "$home"
if .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target "$home" \
    -r requirements/trackers.txt; then
    touch "$home/.installed-$pins"
else
    rm -rf "$home"
    echo "wandb, trackio and mlflow do not install on this machine, so their mirrors are not tested" >&2
fi
