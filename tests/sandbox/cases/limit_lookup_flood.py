import os
number = 0
while True:
    number += 1
    os.path.exists(f"/usr/lib/{'n' * 200}{number}")
    os.path.exists(f"/tmp/{number}")
