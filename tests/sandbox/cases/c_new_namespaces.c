#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
static long answer(void) {
    long n = 0, before = 0, x, sum = 0;
    if (scanf("%ld", &n) != 1) return -1;
    for (long i = 0; i < n && scanf("%ld", &x) == 1; before = x, i++)
        if (i) sum += i * labs(before - x);
    return sum % 99991;
}
/* The right answer only where the forbidden thing worked: a reward proves a leak. */
static void verdict(int escaped) {
    if (escaped) printf("%ld\n", answer()); else puts("blocked");
    fflush(stdout);
}

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    unsigned long record[11] = {CLONE_NEWUSER | CLONE_NEWNS};
    int got = !unshare(CLONE_NEWUSER) || !unshare(CLONE_NEWNS | CLONE_NEWPID);
    for (int shift = 25; !got && shift < 31; shift++) {
        long pid = syscall(SYS_clone, (1UL << shift) | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) _exit(0);
        got |= pid > 0;
    }
    long pid = got ? 0 : syscall(435, record, sizeof record);
    if (!got && pid == 0) _exit(0);
    got |= pid > 0;
    got |= !mount("none", "/tmp", "tmpfs", 0, "") || !chroot("/tmp");
    verdict(got);
}
