#!/usr/bin/env python3
"""changes.py DIR N: makes N changes spread evenly over a tree: 80 % edited in one line, 10 % added, 10 % deleted."""
import os
import sys


def main():
    top, count = sys.argv[1], int(sys.argv[2])
    found = []
    for folder, folders, names in os.walk(top):
        if ".git" in folders:
            folders.remove(".git")
        folders.sort()
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".c")]
    added = count // 10
    deleted = count // 10
    touched = count - added
    chosen = [found[i * len(found) // touched] for i in range(touched)]
    for i, path in enumerate(chosen):
        if deleted and i % 9 == 8:
            os.unlink(path)
            deleted -= 1
            continue
        with open(path, "rb") as file:
            body = file.read()
        cut = body.find(b"\n", len(body) // 2) + 1
        with open(path, "r+b") as file:
            file.write(body[:cut] + b"a changed line\n" + body[cut:])
    for i in range(added):
        folder = os.path.dirname(chosen[i * 7 % len(chosen)])
        with open(os.path.join(folder, "new%d.c" % i), "w", encoding="ascii") as file:
            file.write("int x%d;\n" % i * 40)


if __name__ == "__main__":
    main()
