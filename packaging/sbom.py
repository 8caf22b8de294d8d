#!/usr/bin/env python3
"""Prints the bill of materials of one program: CycloneDX 1.5, the same bytes for the same sources.

    packaging/sbom.py PACKAGE [NAME=VERSION=LICENCE ..]

PACKAGE is a package of the workspace; every crate it links is listed, with checksum and licence. NAME=VERSION=LICENCE adds
a library that is no crate. Run it in the checkout.
"""

import json
import subprocess
import sys
import tomllib


def cargo(*words):
    out = subprocess.run(["cargo", *words], check=True, stdout=subprocess.PIPE)
    return out.stdout.decode()


def host():
    lines = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE).stdout.decode()
    return next(line[6:] for line in lines.splitlines() if line.startswith("host: "))


def linked(metadata, package):
    """Ids of everything that `package` links, itself included: nothing that only runs while it is built or tested."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    macros = {
        package["id"]
        for package in metadata["packages"]
        if any("proc-macro" in target["kind"] for target in package["targets"])
    }
    found, todo = set(), [package]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += [
                dep["pkg"]
                for dep in nodes[node]["deps"]
                if dep["pkg"] not in macros
                and any(kind["kind"] is None for kind in dep["dep_kinds"])
            ]
    return found


def component(package, checksums):
    name, version = package["name"], package["version"]
    entry = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{name}@{version}",
        "name": name,
        "version": version,
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if checksum := checksums.get((name, version)):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


def native(words):
    name, version, licence = words.split("=")
    return {
        "type": "library",
        "bom-ref": f"pkg:generic/{name}@{version}",
        "name": name,
        "version": version,
        "licenses": [{"expression": licence}],
        "purl": f"pkg:generic/{name}@{version}",
    }


def main():
    wanted, libraries = sys.argv[1], sys.argv[2:]
    metadata = json.loads(
        cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", host())
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    root = next(
        package
        for package in metadata["packages"]
        if package["name"] == wanted and package["id"] in metadata["workspace_members"]
    )
    with open("Cargo.lock", "rb") as file:
        lock = tomllib.load(file)
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    ids = linked(metadata, root["id"])
    refs = {id: f"pkg:cargo/{packages[id]['name']}@{packages[id]['version']}" for id in ids}
    graph = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    natives = [native(words) for words in libraries]
    entries = [component(packages[id], checksums) for id in ids if id != root["id"]] + natives
    edges = [
        {
            "ref": refs[id],
            "dependsOn": sorted(refs[dep["pkg"]] for dep in graph[id]["deps"] if dep["pkg"] in ids)
            + (sorted(n["bom-ref"] for n in natives) if id == root["id"] else []),
        }
        for id in ids
    ]
    main_component = component(root, checksums) | {"type": "application"}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": main_component},
        "components": sorted(entries, key=lambda entry: entry["bom-ref"]),
        "dependencies": sorted(edges, key=lambda edge: edge["ref"]),
    }
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    print()


main()
