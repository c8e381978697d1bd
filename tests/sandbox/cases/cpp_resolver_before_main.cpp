#include <sys/syscall.h>
extern "C" {
static void leave() { asm volatile("syscall" ::"a"(SYS_exit_group), "D"(0) : "rcx", "r11"); }
int (*choose())() { leave(); return nullptr; }
int chosen() __attribute__((ifunc("choose")));
}
int main() { return chosen(); }
