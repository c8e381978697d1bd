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

#include <pthread.h>
#include <string.h>
static long got;
static void *grow(void *unused) {
    char *part = malloc(20 << 20);
    if (part) { memset(part, 1, 20 << 20); __sync_fetch_and_add(&got, 20); }
    return unused;
}
int main(void) {
    pthread_t all[20];
    int n = 0;
    while (n < 20 && !pthread_create(&all[n], 0, grow, 0)) n++;
    for (int i = 0; i < n; i++) pthread_join(all[i], 0);
    verdict(got >= 400);
}
