import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


import os, socket, time
for path in ("/tmp/veriloop_beside", "/dev/shm/veriloop_beside", "/dev/veriloop_beside", "/usr/veriloop_beside", "/etc/veriloop_beside", "/veriloop_beside"):
    try: open(path, "w").write("beside")
    except OSError: pass
kept = []
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try: kept.append(socket.socket(socket.AF_UNIX, kind)); kept[-1].bind("\0veriloop_beside"); kept[-1].listen()
    except OSError: pass
x86 = os.uname().machine == "x86_64"
libc.syscall(29 if x86 else 194, 0x76657269, 4096, 0o1666)  # shmget
libc.syscall(68 if x86 else 186, 0x76657269, 0o1666)  # msgget
time.sleep(0.5)
print("held")
