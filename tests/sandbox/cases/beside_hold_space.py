import os, time
try:
    with open("/tmp/full", "wb") as full:
        for _ in range(64): full.write(bytes(1 << 20))
except OSError: pass
try:
    for number in range(4000): open(f"/tmp/{number}", "w").close()
except OSError: pass
time.sleep(0.3)
print("held")
