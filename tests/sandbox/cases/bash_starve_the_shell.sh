spin() { while :; do :; done; }
for p in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do spin & disown; done
spin
