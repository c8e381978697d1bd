#!/bin/sh
# Have a Docker daemon for the tests: where none answers and we are root, install Debian's engine
# and start it. Never fails: without a daemon those tests are skipped, and this says why.
set -u

answers() { command -v docker >/dev/null && docker version >/dev/null 2>&1; }
leave() { echo "docker: $1" >&2; exit 0; }
without() { leave "$1; the tests of the Docker backend are skipped"; }
patiently() { # up to $1 seconds
    for _ in $(seq "$1"); do
        answers && return 0
        sleep 1
    done
    return 1
}

answers && leave "a daemon answers"
[ "$(id -u)" = 0 ] || without "no daemon answers, and only root can install and start one"
if ! command -v dockerd >/dev/null; then
    command -v apt-get >/dev/null || without "dockerd is not installed, and there is no apt-get"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -yq --no-install-recommends docker.io; } >/dev/null ||
        without "docker.io does not install on this machine"
fi
patiently 3 && leave "the daemon that came with the package answers"

# Our containers have no network, so the daemon need not touch the machine's.
log=/var/log/veriloop-dockerd.log
for driver in overlay2 vfs; do
    setsid dockerd --storage-driver="$driver" --bridge=none --iptables=false --ip6tables=false \
        --ip-forward=false --ip-masq=false >"$log" 2>&1 </dev/null &
    daemon=$!
    patiently 20 && leave "started a daemon ($driver, $log); to end it: kill $daemon"
    kill "$daemon" 2>/dev/null
    wait "$daemon"
done
without "dockerd does not start: $(tail -n 1 "$log")"
