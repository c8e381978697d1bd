"""A place in a list of tokens, and the few ways to move on from it."""

from collections.abc import Sequence

from verifiers.math.tokens import END, Token
from verifiers.math.tree import UnreadableError


class Cursor:
    """A place in the tokens."""

    def __init__(self, found: Sequence[Token]) -> None:
        self.found = [*found, END]
        self.at = 0
        self.depth = 0

    @property
    def next(self) -> Token:
        return self.found[self.at]

    def peek(self, ahead: int = 1) -> Token:
        return self.found[min(self.at + ahead, len(self.found) - 1)]

    def take(self) -> Token:
        token = self.next
        self.at += token is not END
        return token

    def sees(self, *texts: str) -> bool:
        return self.next.text in texts and self.next.kind in ("op", "cmd")

    def accept(self, *texts: str) -> bool:
        if not self.sees(*texts):
            return False
        self.at += 1
        return True

    def expect(self, *texts: str) -> Token:
        if not self.sees(*texts):
            raise UnreadableError(f"expected {' or '.join(texts)}, found {self.next.text!r}")
        return self.take()
