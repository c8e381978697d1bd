import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
for number in range(1, signal.NSIG):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
