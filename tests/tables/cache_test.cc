// (next)
