"""Run untrusted code: as a script on standard input, and as a function with plain values."""

from contextlib import closing

from veriloop.sandbox.backends import open_backend
from veriloop.sandbox.executor import Call, Program, Stdin
from veriloop.sandbox.limits import Limits

LIMITS = Limits(cpu_s=1.0, memory_mb=256)


def main() -> None:
    with closing(open_backend("namespace", slots=1)) as sandbox:
        echo = Program(source="print(input()[::-1])")
        print(sandbox.run(echo, Stdin(data=b"stressed"), LIMITS).stdout)

        square = Program(source="def square(n): return n * n")
        done = sandbox.run_all(square, [Call(function="square", args=[n]) for n in (2, 3)], LIMITS)
        print([execution.value for execution in done])

        network = Program(source="import socket; socket.create_connection(('1.1.1.1', 53))")
        print(sandbox.run(network, Stdin(), LIMITS).ended)

        spinner = Program(source="while True: pass")
        print(sandbox.run(spinner, Stdin(), LIMITS).ended)


if __name__ == "__main__":
    main()
