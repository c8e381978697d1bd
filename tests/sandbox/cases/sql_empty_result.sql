select x from numbers where 0;
