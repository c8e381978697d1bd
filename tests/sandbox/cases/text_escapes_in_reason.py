import os
os.write(2, b"\x1b]0;owned\x07\x1b[31m\x1b[2J\x9b31m\xe2\x80\xae\r\x00\xc2\x9b31mError: fine\x1b[8m\n")
os._exit(1)
