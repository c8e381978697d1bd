import asyncio, sys
async def main():
    xs = list(map(int, sys.stdin.read().split()))[1:]
    await asyncio.sleep(0)
    print(sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(xs, xs[1:]))) % 99991)
asyncio.run(main())
