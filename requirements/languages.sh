#!/bin/sh
# The tools with which the sandbox's tests compile and run other languages than Python, and the
# library against which they check the numbers of system calls.
# Installed where we may; elsewhere named, and the tests say at their end what they did without.
set -eu
missing=
for pair in gcc:gcc g++:g++ node:nodejs bash:bash awk:mawk; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
ldconfig -p 2>/dev/null | grep -q libseccomp.so.2 || missing="$missing libseccomp2"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # shellcheck disable=SC2086  # one word for each package
    apt-get update -q && apt-get install -yq --no-install-recommends $missing libc6-dev && exit 0
fi
echo "not installed, so what needs them is not tested:$missing" >&2
