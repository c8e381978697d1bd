read -r n
read -ra xs
cd "$(mktemp -d)"
printf '%s\n' "${xs[@]}" > numbers
cp -p numbers copy; mv copy moved; ln -s moved link; install -m 600 numbers other
touch -d 2020-01-01 moved; chmod 644 moved; mkdir -p deep/er; cat link | tee deep/er/file > /dev/null
find . -type f | sort | xargs wc -l > /dev/null; ls -l > /dev/null; du -s . > /dev/null; df . > /dev/null
sort -n numbers | uniq -c | tail -n 1 > /dev/null
dd if=moved of=blocks bs=512 2> /dev/null; cmp -s numbers blocks || exit 1
timeout 5 sleep 0.01; date > /dev/null; nproc > /dev/null; env -i true; nice true
trap ':' USR1; kill -USR1 $$; sleep 0.01 & wait $!
awk 'NR > 1 { d = $1 - before; sum += (NR - 1) * (d < 0 ? -d : d) } { before = $1 } END { print sum % 99991 }' deep/er/file
