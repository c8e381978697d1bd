import sqlite3
import sys

xs = list(map(int, sys.stdin.read().split()))[1:]
with sqlite3.connect("/tmp/numbers.db") as base:
    base.execute("create table numbers(x integer)")
    base.executemany("insert into numbers values (?)", [(x,) for x in xs])
print(base.execute("select sum(x * x) % 9973 from numbers").fetchone()[0])
