import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

librt = ctypes.CDLL("librt.so.1", use_errno=True)
librt.mq_open(b"/veriloop_planted", 0o102, 0o666, None)
print("planted")
