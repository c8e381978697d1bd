#!/bin/sh
# The environment of lm-evaluation-harness, apart from ours, for `veriloop evaluate --lm-eval`.
# A second run with the same pins does nothing.
set -eu
cd "$(dirname "$0")/.."

home=outputs/cache/env-lm-eval
done_mark=$home/.installed-$(cksum < requirements/lm-eval.txt | cut -d' ' -f1)
[ -e "$done_mark" ] && exit 0

"${PYTHON:-python3}" -m venv --clear "$home"
"$home/bin/python" -m pip --disable-pip-version-check install -q --no-deps -r requirements/lm-eval.txt
touch "$done_mark"
