from multiprocessing import shared_memory, resource_tracker
resource_tracker.register = lambda *a: None
try:
    segment = shared_memory.SharedMemory("veriloop_planted", create=True, size=4096)
    segment.buf[:4] = b"seed"
except OSError: pass
print("planted")
