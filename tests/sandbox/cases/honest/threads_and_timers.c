#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static long *xs; static int n; static long parts[4];
static void *part(void *which) {
  long k = (long)which;
  for (int i = (int)k; i + 1 < n; i += 4) parts[k] += (i + 1) * labs(xs[i] - xs[i + 1]);
  return NULL;
}
int main(void) {
  if (scanf("%d", &n) != 1) return 1;
  int file = open("/tmp/numbers", O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, n * sizeof *xs)) return 2;
  xs = mmap(NULL, n * sizeof *xs, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  for (int i = 0; i < n; i++) if (scanf("%ld", xs + i) != 1) return 3;
  pthread_t threads[4];
  for (long k = 0; k < 4; k++) if (pthread_create(threads + k, NULL, part, (void *)k)) return 4;
  for (int k = 0; k < 4; k++) pthread_join(threads[k], NULL);
  int timer = timerfd_create(CLOCK_MONOTONIC, 0), event = eventfd(0, 0), poll = epoll_create1(0);
  struct itimerspec soon = {.it_value = {0, 1000000}};
  struct epoll_event ready = {.events = EPOLLIN};
  if (timerfd_settime(timer, 0, &soon, NULL) || epoll_ctl(poll, EPOLL_CTL_ADD, timer, &ready)) return 5;
  if (epoll_wait(poll, &ready, 1, 5000) != 1 || eventfd_write(event, 1)) return 6;
  struct timespec pause = {0, 1000}, now;
  clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL); clock_gettime(CLOCK_REALTIME, &now);
  printf("%ld\n", (parts[0] + parts[1] + parts[2] + parts[3]) % 99991);
}
