#!/bin/sh
# The browser in which the tests open reports, and a font with Chinese characters for the pictures in docs/.
# Installed where we may; elsewhere named, and the tests say at their end what they did without.
set -eu
command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
    command -v google-chrome >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q &&
        apt-get install -yq --no-install-recommends chromium fonts-wqy-microhei; } >/dev/null && exit 0
fi
echo "no Chromium on this machine, so reports are not opened in one" >&2
