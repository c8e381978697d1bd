# Every child ends soon and is reaped by nobody: its time is in no total of its parent.
trap '' CHLD
burst() { local i; for ((i = 0; i < 30000; i++)); do :; done; }
while :; do
  for p in 1 2 3 4 5 6 7 8; do (burst &); done
  sleep 0.05
done
