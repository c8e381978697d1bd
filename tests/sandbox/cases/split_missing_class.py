def Tree():
    return None
