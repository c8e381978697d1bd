import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


import time
timer = ctypes.c_int()
made = 0
while made < 200_000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0: made += 1
time.sleep(0.4)
print("held")
