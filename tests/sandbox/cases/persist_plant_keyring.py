import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

import os
add, keyctl = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
ring = libc.syscall(keyctl, 22, -1, -3)  # KEYCTL_GET_PERSISTENT
for where in (ring, -4, -5):
    libc.syscall(add, b"user", b"veriloop_planted", b"seed", 4, where)
print("planted")
