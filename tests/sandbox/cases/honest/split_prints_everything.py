import sys
def depth(node):
    print(node, repr(node), file=sys.stderr)
    print([node], depth, 'x' * 100000)
    sys.stdout.flush()
    return 1 + depth(node.next) if node.next else 1
