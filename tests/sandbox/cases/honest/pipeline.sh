set -euo pipefail
read -r count
tr ' ' '\n' > /tmp/numbers
total=$(head -n "$count" /tmp/numbers | awk 'NR > 1 { d = $1 - last; s += (NR - 1) * (d < 0 ? -d : d) } { last = $1 } END { print s }')
echo $((total % 99991))
