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

#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    char ring[256] = {0};
    int got = 0;
    got |= syscall(425, 4, ring) >= 0;                       /* io_uring_setup */
    got |= syscall(SYS_socket, 40, 1, 0) >= 0;               /* vsock */
    got |= syscall(SYS_socket, 16, 3, 0) >= 0;               /* netlink */
    got |= syscall(SYS_ptrace, 0, 0, 0, 0) >= 0;
    got |= syscall(SYS_bpf, 0, ring, sizeof ring) >= 0;
    got |= syscall(SYS_userfaultfd, 1) >= 0;
    got |= syscall(SYS_keyctl, 0, -3, 1) >= 0;
    got |= syscall(SYS_memfd_create, "x", 0) >= 0;
    got |= syscall(447, 0) >= 0;                             /* memfd_secret */
    got |= syscall(SYS_perf_event_open, ring, 0, -1, -1, 0) >= 0;
    verdict(got);
}
