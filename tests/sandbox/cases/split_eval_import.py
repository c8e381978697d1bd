def source(n):
    return '__import__("no_such_module")'
