def runs(xs):
    tags = ["$t", "$i", "$f", "$d", "$s", "$b", "$c", "t", "i", "tuple", "int", "__type__"]
    return [{tag: [["0", "0"]]} for tag in tags]
