from pathlib import Path
def write(folder, count, seed): return []
