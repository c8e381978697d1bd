#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void) {
    if (fork() == 0) {
        setsid();
        prctl(PR_SET_NAME, "rlvrmark_c");
        if (fork() == 0) { sleep(60); _exit(0); }
        _exit(0);
    }
    puts("left");
}
