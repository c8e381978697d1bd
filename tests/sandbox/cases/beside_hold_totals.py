import threading, time
for _ in range(24): threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
block = bytearray(40 << 20)
time.sleep(0.4)
print("held")
