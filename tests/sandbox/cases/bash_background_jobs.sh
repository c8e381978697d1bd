cp /bin/sleep /tmp/rlvrmark_job
setsid nohup /tmp/rlvrmark_job 60 >/dev/null 2>&1 &
(trap '' HUP TERM INT; /tmp/rlvrmark_job 60) &
disown -a
echo left
