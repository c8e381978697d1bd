"""The names that code of tests leaves to the program under test."""

import ast
import symtable
from collections.abc import Iterator

UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # raised by free_names


def free_names(code: str) -> list[str]:
    """The names that the code reads without binding them, also those of builtins and libraries.

    Those that it calls come first; all are in the order of the code. What it imports from the
    module `solution` is among them. Raises one of UNPARSABLE for what is no Python code.
    """
    tree = ast.parse(code)
    table = symtable.symtable(code, "tests", "exec")
    bound = {symbol.get_name() for scope in _scopes(table) for symbol in _global_bindings(scope)}
    read = {
        symbol.get_name()
        for scope in _scopes(table)
        for symbol in scope.get_symbols()
        if symbol.is_global() and symbol.is_referenced()
    }
    free = {name for name in read - bound if not name.startswith("__")}
    places = [place for node in ast.walk(tree) for place in _places(node, free)]
    return list(dict.fromkeys(name for *_, name in sorted(places)))


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def _global_bindings(table: symtable.SymbolTable) -> Iterator[symtable.Symbol]:
    for symbol in table.get_symbols():
        bound = symbol.is_assigned() or symbol.is_imported()
        if bound and (table.get_type() == "module" or symbol.is_declared_global()):
            yield symbol


def _places(node: ast.AST, free: set[str]) -> Iterator[tuple[bool, int, int, str]]:
    """(False where it is called, line, column, name) of free names."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in free:
            yield False, node.lineno, node.col_offset, name
        case ast.Name(id=name) if name in free:
            yield True, node.lineno, node.col_offset, name
        case ast.ImportFrom(module="solution", names=aliases):
            for alias in aliases:
                if alias.name != "*":
                    yield True, alias.lineno, alias.col_offset, alias.name
