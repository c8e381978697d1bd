#pragma GCC dependency "/root/.rlvr_canary"
#pragma GCC pch_preprocess "/tmp/x.gch"
#include "/tmp/solution.c.gch"
__asm__(".print \"x\"\n.file 1 \"/root/x\"\n.err");
int main(void) { return 0; }
