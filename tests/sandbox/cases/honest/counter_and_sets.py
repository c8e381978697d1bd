from collections import Counter, defaultdict
def zigzag(words):
    found = Counter(words)
    again = defaultdict(int)
    for word in words: again[word] += 1
    return [found, again]
