import faulthandler, time
def zigzag(xs):
    faulthandler.dump_traceback_later(0.1, exit=True)
    time.sleep(1)
    return 7
