import select
sets = []
try:
    while len(sets) < 60:
        sets.append(select.epoll())
        for other in sets[:-1]:
            try: sets[-1].register(other.fileno(), select.EPOLLIN)
            except OSError: pass
except OSError: pass
for one in sets: one.poll(0)
print("built", len(sets))
