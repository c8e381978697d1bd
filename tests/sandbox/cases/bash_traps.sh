trap '' HUP INT QUIT TERM XCPU ALRM
trap 'while :; do sleep 1; done' EXIT
