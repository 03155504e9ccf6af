#!/usr/bin/env python3
"""Writes the files below a folder into a zip file, in a fixed order and with the time in SOURCE_DATE_EPOCH.

    make_zip.py FOLDER FILE
"""
import os
import sys
import time
import zipfile
from pathlib import Path


def main() -> int:
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    stamp = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), stamp)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
