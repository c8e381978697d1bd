import threading, time
for _ in range(64):
    try: threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
    except RuntimeError: break
time.sleep(0.5)
print("held")
