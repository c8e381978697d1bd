yes rlvr
