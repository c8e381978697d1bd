#!/bin/sh
# The tools with which the sandbox's tests compile and run other languages than Python.
# Installed where we may; elsewhere named, and the tests say at their end what they did without.
set -eu
missing=
for pair in gcc:gcc g++:g++ node:nodejs bash:bash awk:mawk; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # shellcheck disable=SC2086  # one word for each package
    apt-get update -q && apt-get install -yq --no-install-recommends $missing libc6-dev && exit 0
fi
echo "not installed, so their languages are not tested:$missing" >&2
