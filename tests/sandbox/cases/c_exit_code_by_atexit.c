#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void late(void) { _exit(0); }
int main(void) { atexit(late); puts("0"); fflush(stdout); abort(); }
