def evens(n):
    return {place: 2 * place for place in range(n)}
