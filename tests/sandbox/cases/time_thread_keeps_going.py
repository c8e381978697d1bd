import threading, time
def on():
    ends = time.monotonic() + 60
    while time.monotonic() < ends: time.sleep(0.01)
threading.Thread(target=on).start()
