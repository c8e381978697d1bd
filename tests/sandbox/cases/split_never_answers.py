import time
def zigzag(xs):
    time.sleep(60)
